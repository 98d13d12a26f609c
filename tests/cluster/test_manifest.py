"""The KubeRay manifest of docs/: well formed, closed, and said to be untried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spec("FLEET-1")

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra `cluster`")
DOCS = Path(__file__).parent.parent.parent / "docs"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DOCS / "cluster" / "kuberay.yaml").read_text()))


def test_the_manifest_is_a_ray_cluster_and_a_policy_that_closes_it() -> None:
    cluster, policy = documents()
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        assert isinstance(group["rayStartParams"], dict)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        template = group["template"]
        assert template["metadata"]["labels"] == policy["spec"]["podSelector"]["matchLabels"]
        (container,) = template["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert {"name": "SUREHAND_SANDBOX__MODE", "value": "required"} in container["env"]
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert (policy["kind"], policy["spec"]["policyTypes"]) == ("NetworkPolicy", ["Ingress"])
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": policy["spec"]["podSelector"]}]}]


def test_the_page_says_that_it_is_untried() -> None:
    assert "**It is untried**" in (DOCS / "cluster.md").read_text()
