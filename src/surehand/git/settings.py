"""The settings of a repository that are known harmless; every other one is not, whatever its name.

A setting is harmless when git, run by the user on any subcommand, starts no program, opens no file and reaches no host
because of it that it would not have without it. `*` stands for what is between section and name. A few settings are
harmless by their value: a file inside the repository, an address without a helper in it, git-lfs as it installs itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

_PLAIN: Final = """
add.ignoreErrors
advice.*
am.keepcr am.threeWay apply.ignoreWhitespace apply.whitespace
author.email author.name committer.email committer.name user.email user.name user.useConfigOnly
blame.blankBoundary blame.coloring blame.date blame.markIgnoredLines blame.markUnblamableLines blame.showEmail
blame.showRoot
branch.*.description branch.*.merge branch.*.rebase branch.*.vscode-merge-base branch.*.github-pr-owner-number
branch.*.github-pr-base-branch branch.*.gh-merge-base branch.*.gk-merge-base branch.*.gk-last-accessed
branch.autoSetupMerge branch.autoSetupRebase
checkout.defaultRemote checkout.guess checkout.thresholdForParallelism checkout.workers
clean.requireForce clone.defaultRemoteName clone.rejectShallow
color.*
column.*
commit.cleanup commit.status
commitGraph.generationVersion commitGraph.maxNewFilters commitGraph.readChangedPaths
core.abbrev core.autocrlf core.bare core.bigFileThreshold core.checkRoundtripEncoding core.checkStat core.commentChar
core.commentString core.commitGraph core.compression core.createObject core.deltaBaseCacheLimit core.eol core.fileMode
core.filesRefLockTimeout core.fsync core.fsyncMethod core.fsyncObjectFiles core.hideDotFiles core.ignoreCase
core.ignoreStat core.logAllRefUpdates core.looseCompression core.multiPackIndex core.notesRef core.packedGitLimit
core.packedGitWindowSize core.packedRefsTimeout core.precomposeUnicode core.preferSymlinkRefs core.preloadIndex
core.quotePath core.repositoryFormatVersion core.safecrlf core.sharedRepository core.sparseCheckout
core.sparseCheckoutCone core.splitIndex core.symlinks core.trustctime core.untrackedCache core.useReplaceRefs
core.warnAmbiguousRefs core.whitespace
diff.*.binary diff.*.wordRegex diff.*.xfuncname diff.*.funcname
diff.algorithm diff.autoRefreshIndex diff.colorMoved diff.colorMovedWS diff.context diff.dirstat diff.ignoreSubmodules
diff.indentHeuristic diff.interHunkContext diff.mnemonicPrefix diff.noprefix diff.relative diff.renameLimit diff.renames
diff.statGraphWidth diff.suppressBlankEmpty diff.wordRegex diff.wsErrorHighlight
extensions.objectFormat extensions.compatObjectFormat extensions.worktreeConfig extensions.preciousObjects
extensions.noop extensions.noop-v1 extensions.refStorage extensions.relativeWorktrees
feature.experimental feature.manyFiles
fetch.fsckObjects fetch.negotiationAlgorithm fetch.output fetch.parallel fetch.prune fetch.pruneTags
fetch.recurseSubmodules fetch.showForcedUpdates fetch.unpackLimit fetch.writeCommitGraph
gc.aggressiveDepth gc.aggressiveWindow gc.auto gc.autoDetach gc.autoPackLimit gc.bigPackThreshold gc.cruftPacks
gc.logExpiry gc.packRefs gc.pruneExpire gc.reflogExpire gc.reflogExpireUnreachable gc.rerereResolved
gc.rerereUnresolved gc.worktreePruneExpire gc.writeCommitGraph gc.*.reflogExpire gc.*.reflogExpireUnreachable
grep.column grep.extendedRegexp grep.fullName grep.lineNumber grep.patternType grep.threads
http.postBuffer http.version
i18n.commitEncoding i18n.logOutputEncoding
index.recordEndOfIndexEntries index.recordOffsetTable index.skipHash index.sparse index.threads index.version
init.defaultBranch
lfs.repositoryFormatVersion lfs.*.access lfs.*.locksVerify
log.abbrevCommit log.date log.decorate log.excludeDecoration log.follow log.graphColors log.initialDecorationSet
log.mailmap log.showRoot
mailinfo.scissors mailmap.blob
maintenance.auto maintenance.strategy maintenance.*.enabled maintenance.*.schedule maintenance.*.auto
merge.*.name merge.autoStash merge.branchdesc merge.conflictStyle merge.defaultToUpstream merge.directoryRenames
merge.ff merge.log merge.renameLimit merge.renames merge.renormalize merge.stat merge.suppressDest merge.verbosity
pack.allowPackReuse pack.compression pack.deltaCacheLimit pack.deltaCacheSize pack.depth pack.indexVersion
pack.packSizeLimit pack.threads pack.useBitmaps pack.useSparse pack.window pack.windowMemory
pack.writeBitmapHashCache pack.writeBitmapLookupTable pack.writeReverseIndex
protocol.version pull.ff pull.rebase
push.autoSetupRemote push.default push.followTags push.negotiate push.useBitmaps push.useForceIfIncludes
rebase.abbreviateCommands rebase.autoSquash rebase.autoStash rebase.backend rebase.forkPoint
rebase.missingCommitsCheck rebase.stat rebase.updateRefs
remote.*.fetch remote.*.gh-resolved remote.*.mirror remote.*.prune remote.*.pruneTags remote.*.push
remote.*.skipDefaultUpdate remote.*.skipFetchAll remote.*.tagOpt
remote.pushDefault remotes.*
repack.cruftDepth repack.cruftThreads repack.cruftWindow repack.packKeptObjects repack.useDeltaBaseOffset
repack.writeBitmaps rerere.autoUpdate rerere.enabled revert.reference
sparse.expectFilesOutsideOfPatterns splitIndex.maxPercentChange splitIndex.sharedIndexExpire
stash.showIncludeUntracked stash.showPatch stash.showStat
status.aheadBehind status.branch status.displayCommentPrefix status.relativePaths status.renameLimit status.renames
status.short status.showStash status.showUntrackedFiles
submodule.*.active submodule.*.branch submodule.*.fetchRecurseSubmodules submodule.*.ignore
submodule.active submodule.fetchJobs submodule.propagateBranches submodule.recurse
tar.umask transfer.fsckObjects transfer.unpackLimit
versionsort.suffix worktree.guessRemote worktree.useRelativePaths
"""
_ADDRESSES: Final = "remote.*.url remote.*.pushurl submodule.*.url branch.*.remote branch.*.pushRemote"
_FILES: Final = "blame.ignoreRevsFile commit.template core.attributesFile core.excludesFile diff.orderFile mailmap.file"
_VALUES: Final[dict[str, str]] = {
    "branch.sort": r"-?(?:v(?:ersion)?:)?(?:refname|(?:committer|author|creator|tagger)date|objectsize)",
    "tag.sort": r"-?(?:v(?:ersion)?:)?(?:refname|(?:committer|author|creator|tagger)date|objectsize)",
    "core.fsmonitor": r"(?i:false|no|off|0|)",
    "core.pager": r"cat",
    "log.showSignature": r"(?i:false|no|off|0)",
    "commit.gpgSign": r"(?i:false|no|off|0)",
    "tag.gpgSign": r"(?i:false|no|off|0)",
    "filter.lfs.clean": r"git-lfs clean -- %f",
    "filter.lfs.smudge": r"git-lfs smudge -- %f|git-lfs smudge --skip -- %f",
    "filter.lfs.process": r"git-lfs filter-process|git-lfs filter-process --skip",
    "filter.lfs.required": r"(?i:true|false)",
    "submodule.*.update": r"none|checkout|rebase|merge",
}
_SCHEMES: Final = frozenset({"file", "git", "git+ssh", "http", "https", "ssh", "ssh+git"})

# Settings that name programs or files which a command that only looks has no use for: it never edits, signs or pages,
# and the hooks and monitors of the repository itself are switched off for it (`reads.py`).
_UNUSED_BY_READS: Final = (
    "core.editor core.pager pager.* sequence.editor core.hooksPath commit.template commit.verbose commit.gpgSign "
    "tag.gpgSign tag.forceSignAnnotated user.signingKey push.gpgSign push.pushOption push.recurseSubmodules gpg.format "
    "format.signOff format.subjectPrefix format.to format.cc init.templateDir merge.tool diff.tool"
)


@cache
def _pattern(lines: str) -> re.Pattern[str]:
    """Return what the names match, compiled on first use: 8 ms that a call without a repository does not need."""
    names = sorted(re.escape(name.lower()).replace(r"\*", ".+") for name in lines.split())
    return re.compile("|".join(names), re.DOTALL)


def is_harmless(key: str, value: str, *, inside: Callable[[str], bool], reads: bool = False) -> bool:
    """Tell whether a setting is known harmless; `inside` says whether a file it names lies in the repository.

    With `reads`, whether it is for commands that only look, run on this very repository.
    """
    name = _fold_key(key)
    if _pattern(_PLAIN).fullmatch(name) or (reads and _pattern(_UNUSED_BY_READS).fullmatch(name)):
        return True
    if _pattern(_ADDRESSES).fullmatch(name):
        return _is_plain_address(value)
    if _pattern(_FILES).fullmatch(name):
        return not value or inside(value)
    return any(_pattern(names).fullmatch(name) and re.fullmatch(values, value) for names, values in _VALUES.items())


def _fold_key(key: str) -> str:
    """Return a key as git compares it: what stands in the middle is anybody's, the rest has no case."""
    section, _, rest = key.partition(".")
    middle, dot, name = rest.rpartition(".")
    return f"{section}.{middle}{dot}{name}".lower()


def _is_plain_address(value: str) -> bool:
    """Tell whether git needs no helper for an address, and takes it for no option."""
    scheme = re.match(r"([\w.+-]+)://", value)
    if scheme is not None:
        return scheme[1].lower() in _SCHEMES
    return not value.startswith("-") and "::" not in value
