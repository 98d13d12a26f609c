"""The doctor's look at the tools: would every provider take them, and what do they cost?"""

from __future__ import annotations

from argparse import Namespace

from surehand.cli.doctor import Check, Section


def examine(options: Namespace) -> Section:
    """Check every tool's definition, and add up what a model is shown at first."""
    from surehand.app import Surehand
    from surehand.core.schema_lint import lint, tokens

    app = Surehand(options.cwd, keep_state=False)
    infos = app.registry.infos()
    findings = [finding for info in infos for finding in lint(info)]
    costs = {info.name: tokens(info) for info in infos}
    shown = [info.name for info in app.selection.active_tools()]
    refused = [finding for finding in findings if finding.weight == "refused"]
    checks = [
        Check(f"{each.tool} for {each.provider}", False, each.message, "The provider would refuse the whole list.")
        for each in refused
    ]
    checks += [
        Check(f"{each.tool} for {each.provider}", True, f"advice: {each.message}")
        for each in findings
        if each not in refused
    ]
    dearest = sorted(costs, key=lambda name: -costs[name])[:3]
    total, first = sum(costs.values()), sum(costs[name] for name in shown)
    told = f"about {first:,} tokens shown at first ({len(shown)} of {len(infos)} tools), {total:,} in all"
    checks.append(Check("cost", True, f"{told}; dearest: {', '.join(f'{name} {costs[name]:,}' for name in dearest)}"))
    checks += [Check("plug-ins", False, warning) for warning in app.warnings]
    facts = {"tokens": costs, "shown_tokens": first, "findings": [each.to_dict() for each in findings]}
    return Section("Tools", tuple(checks), facts)
