"""The model of git: whether a repository's own files could make it run, read or reach something unexpected.

The user's settings (`~/.gitconfig`, the system's, the environment's) are trusted; a repository's may be anybody's. This
module has the allow-list of harmless settings; whatever is not on it is named, and running git there asks first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.git.config import entries, read_plain
from surehand.git.repositories import (
    Repository,
    find_index_problem,
    inner_repositories,
    read_pack_names,
    repositories_around,
    repository_at,
    too_many,
    tracked_folders,
)

_CONFIG: Final = 1 << 20
_INCLUDES: Final = 10
_PACK: Final = lazy_pattern(rb"pack-[0-9a-f]{40,64}\.(?:idx|pack)")
CONFIGS: Final = ("config", "config.worktree")
_MOST_FILES: Final = 100_000
"""Limit on the files of a git directory that are checked for symbolic links."""
_ALTERNATES: Final = 5
"""Depth to which git itself follows `objects/info/alternates`."""


def find_risks(folder: str, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what in the repository around `folder` is not known to be harmless for a command that only reads.

    `roots` are directories that may be read anyway.
    """
    found: dict[str, None] = {}
    for repository in repositories_around(folder):
        found.update(dict.fromkeys(_RepositoryCheck(repository, roots, reads=True).run()))
        for inner in inner_repositories(repository):
            found.update(
                dict.fromkeys(_RepositoryCheck(inner, (*roots, repository.top, *repository.folders), reads=False).run())
            )
        if too_many(repository):
            found["more repositories inside than are looked at"] = None
    return tuple(found)


class _RepositoryCheck:
    """A check of one repository."""

    def __init__(self, repository: Repository, roots: Iterable[str], *, reads: bool) -> None:
        self._repository = repository
        self._reads = reads
        """Whether git runs in this very repository: only there are its hooks switched off from outside."""
        self._around = (repository.top, *(os.path.realpath(root) for root in roots))
        self._own = (*self._around, *repository.folders)

    def run(self) -> Iterator[str]:
        """Yield descriptions of everything not known to be harmless."""
        repository = self._repository
        if repository.pointer and not _lies_in(repository.git_dir, self._around) and not repository.is_linked:
            yield f".git, which leads to {repository.git_dir}"
        if repository.common != repository.git_dir and not (
            _lies_in(repository.common, self._around) or repository.is_worktree_of_common
        ):
            yield f"commondir, which leads to {repository.common}"
        for folder in repository.folders:
            yield from self._find_links(folder)
        yield from _list_foreign_packs(os.path.join(repository.common, "objects"))
        yield from self._check_alternates(os.path.join(repository.common, "objects"))
        if problem := find_index_problem(repository.git_dir):
            yield problem
        elif self._reads:
            yield from self._find_linked_directories()
        for folder in repository.folders:
            for name in CONFIGS:
                yield from self._check_settings(os.path.join(folder, name), name)
        if not self._reads:
            yield from self._find_hook()

    def _is_own(self, path: str) -> bool:
        return _lies_in(path, self._own)

    def _find_links(self, top: str, shown: str = "") -> Iterator[str]:
        """Yield symbolic links that lead out of a git directory: git reads, and sometimes prints, their targets."""
        count, waiting = 0, [shown]
        while waiting:
            inner = waiting.pop()
            for entry in _list_folder(os.path.join(top, inner)):
                count += 1
                name = os.path.join(inner, entry.name)
                if entry.is_symlink():
                    path = os.path.realpath(entry.path)
                    if not self._is_own(path) or is_secret(path):
                        yield f"{name}, which is a link to {path}"
                elif entry.is_dir(follow_symlinks=False) and _is_entered(name):
                    waiting.append(name)
            if count > _MOST_FILES:
                yield "more files than are looked at"
                return

    def _find_linked_directories(self) -> Iterator[str]:
        """Yield directories of tracked files that are links to elsewhere: `git grep` prints files behind them."""
        for name in tracked_folders(self._repository.git_dir):
            path = os.path.join(self._repository.top, name)
            if os.path.islink(path) and not self._is_own(target := os.path.realpath(path)):
                yield f"index, which tracks files in {name}, a link to {target}"

    def _check_alternates(self, objects: str, depth: int = 0) -> Iterator[str]:
        path = f"{objects}/info/alternates"
        data = read_plain(os.fsencode(path), _CONFIG)
        if data is None and os.path.lexists(path):
            yield "objects/info/alternates, which cannot be read"
        for line in (data or b"").split(b"\n"):
            repository = os.path.realpath(os.path.join(objects, os.fsdecode(line.replace(b"\0", b""))))
            if line.startswith(b'"') or (line and not line.startswith(b"#") and not self._is_own(repository)):
                yield f"objects/info/alternates, which leads to {repository}"
            elif line and not line.startswith(b"#") and depth < _ALTERNATES:
                yield from _list_foreign_packs(repository)
                yield from self._find_links(os.path.dirname(repository), os.path.basename(repository))
                yield from self._check_alternates(repository, depth + 1)

    def _find_hook(self) -> Iterator[str]:
        """Yield the one hook that reading commands run, unless it is switched off from outside."""
        hook = os.path.join(self._repository.common, "hooks", "post-index-change")
        if os.access(hook, os.X_OK):
            yield "hooks/post-index-change"

    def _check_settings(self, path: str, shown: str, depth: int = 0) -> Iterator[str]:
        data = read_plain(os.fsencode(path), _CONFIG)
        if data is None:
            if os.path.lexists(path):
                yield f"{shown}, which cannot be read"
            return
        found, whole = entries(data)
        if not whole:
            yield f"{shown}, which cannot be read"
        for each in found:
            key, value = os.fsdecode(each.key), os.fsdecode(each.value)
            if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
                yield from self._check_included(path, key, value, depth)
            elif key == "core.worktree":
                if not self._is_own_worktree(value):
                    yield f"core.worktree, which leads to {value}"
            elif not is_harmless(key, value, inside=self._is_own_file, reads=self._reads):
                yield key

    def _check_included(self, path: str, key: str, value: str, depth: int) -> Iterator[str]:
        """Check an included file, whatever its condition says now; only a file of the repository itself is accepted.

        Its own includes are relative to the directory it was named in, even if it is a link to another one.
        """
        named = os.path.join(os.path.dirname(path), os.path.expanduser(value))
        if depth >= _INCLUDES or not _is_plain_path(value) or not self._is_own_file(named):
            yield key
        else:
            yield from self._check_settings(named, value, depth + 1)

    def _is_own_worktree(self, value: str) -> bool:
        """Tell whether `core.worktree` names the worktree that this git directory belongs to, as for a submodule."""
        if not _is_plain_path(value):
            return False
        repository = os.path.realpath(os.path.join(self._repository.git_dir, value))
        if repository == self._repository.top or repository == os.path.dirname(self._repository.git_dir):
            return True
        if not self._reads:  # a nested repository: files of the outer one may be read
            return self._is_own(repository)
        there = repository_at(repository)
        return there is not None and there.git_dir == self._repository.git_dir and self._is_own(repository)

    def _is_own_file(self, value: str) -> bool:
        """Tell whether the file a setting names lies in the repository and is not a secret."""
        path = os.path.realpath(os.path.join(self._repository.top, os.path.expanduser(value)))
        return _is_plain_path(value) and self._is_own(path) and not is_secret(path)


def _list_folder(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


def _list_foreign_packs(objects: str) -> Iterator[str]:
    """Yield multi-pack indexes that name anything but packs beside them: git opens what they name."""
    several = f"{objects}/pack/multi-pack-index"
    for path in (several, *(each.path for each in _list_folder(f"{several}.d") if each.name.endswith(".midx"))):
        if os.path.lexists(path) and not all(map(_PACK.fullmatch, read_pack_names(path) or (b"",))):
            yield f"{path.removeprefix(objects + '/')}, which names other files than packs"


def _is_entered(name: str) -> bool:
    """Tell whether a directory inside a git directory is searched for links.

    Not searched are submodules (checked as repositories), loose objects (git opens them by their hash) and directories
    of other programs.
    """
    top, _, rest = name.partition("/")
    return top not in ("modules", "lfs", "annex") and (top != "objects" or rest in ("", "info", "pack"))


def _is_plain_path(value: str) -> bool:
    """Tell whether every version of git reads a value as the same path.

    `%(prefix)` and `:(optional)` are expanded by some versions, and some turn a tab into a space.
    """
    return not value.startswith(("%(", ":(")) and "\t" not in value and "\r" not in value


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


# The allow-list of harmless settings; every other setting asks, whatever its name.

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
core.ignoreStat core.logAllRefUpdates core.longPaths core.looseCompression
core.multiPackIndex core.notesRef core.packedGitLimit
core.packedGitWindowSize core.packedRefsTimeout core.precomposeUnicode core.preferSymlinkRefs core.preloadIndex
core.quotePath core.repositoryFormatVersion core.safecrlf core.sharedRepository core.sparseCheckout
core.sparseCheckoutCone core.splitIndex core.symlinks core.trustctime core.untrackedCache core.useReplaceRefs
core.warnAmbiguousRefs core.whitespace
diff.*.binary diff.*.wordRegex diff.*.xfuncname diff.*.funcname
diff.algorithm diff.autoRefreshIndex diff.colorMoved diff.colorMovedWS diff.context diff.dirstat diff.ignoreSubmodules
diff.indentHeuristic diff.interHunkContext diff.mnemonicPrefix diff.noprefix diff.relative diff.renameLimit diff.renames
diff.statGraphWidth diff.suppressBlankEmpty diff.wordRegex diff.wsErrorHighlight
extensions.objectFormat extensions.compatObjectFormat extensions.worktreeConfig extensions.preciousObjects
extensions.noop extensions.noop-v1 extensions.relativeWorktrees
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
bash.showDirtyState bash.showUntrackedFiles oh-my-zsh.hide-dirty oh-my-zsh.hide-info oh-my-zsh.hide-status
gui.geometry gui.wmstate
"""
_ADDRESSES: Final = "remote.*.url remote.*.pushurl submodule.*.url branch.*.remote branch.*.pushRemote"
_FILES: Final = "blame.ignoreRevsFile commit.template core.attributesFile core.excludesFile diff.orderFile mailmap.file"
_VALUES: Final[dict[str, str]] = {
    "branch.sort": r"-?(?:v(?:ersion)?:)?(?:refname|(?:committer|author|creator|tagger)date|objectsize)",
    "tag.sort": r"-?(?:v(?:ersion)?:)?(?:refname|(?:committer|author|creator|tagger)date|objectsize)",
    "core.fsmonitor": r"(?i:false|no|off|0|)",
    "extensions.refStorage": r"files|reftable",  # could also name another directory (`files://DIRECTORY`)
    "core.pager": r"cat",
    "log.showSignature": r"(?i:false|no|off|0)",
    "commit.gpgSign": r"(?i:false|no|off|0)",
    "tag.gpgSign": r"(?i:false|no|off|0)",
    "gitflow.branch.*": r"[\w./-]*",
    "gitflow.prefix.*": r"[\w./-]*",
    "git-town.main-branch": r"[\w./-]*",
    "filter.lfs.clean": r"git-lfs clean -- %f",
    "filter.lfs.smudge": r"git-lfs smudge -- %f|git-lfs smudge --skip -- %f",
    "filter.lfs.process": r"git-lfs filter-process|git-lfs filter-process --skip",
    "filter.lfs.required": r"(?i:true|false)",
    "submodule.*.update": r"none|checkout|rebase|merge",
}
_SCHEMES: Final = frozenset({"file", "git", "git+ssh", "http", "https", "ssh", "ssh+git"})

# Settings that name programs or files a reading command never uses: it does not edit, sign or page, and the hooks and
# the file monitor of the repository it runs in are switched off (`git.config`).
_UNUSED_BY_READS: Final = (
    "core.editor core.pager pager.* sequence.editor core.hooksPath commit.template commit.verbose commit.gpgSign "
    "tag.gpgSign tag.forceSignAnnotated user.signingKey push.gpgSign push.pushOption push.recurseSubmodules gpg.format "
    "format.signOff format.subjectPrefix format.to format.cc init.templateDir merge.tool diff.tool"
)


@cache
def _pattern(lines: str) -> re.Pattern[str]:
    """Compile a list of names to a pattern; on first use, since it takes 8 ms that most calls do not need."""
    names = sorted(re.escape(name.lower()).replace(r"\*", ".+") for name in lines.split())
    return re.compile("|".join(names), re.DOTALL)


def is_harmless(key: str, value: str, *, inside: Callable[[str], bool], reads: bool = False) -> bool:
    """Tell whether a setting is known to be harmless; `inside` tests whether a file it names lies in the repository.

    With `reads`, whether it is harmless for reading commands that run in this very repository.
    """
    name = _fold_key(key)
    if _pattern(_PLAIN).fullmatch(name) or (reads and _pattern(_UNUSED_BY_READS).fullmatch(name)):
        return True
    if _pattern(_ADDRESSES).fullmatch(name):
        return _is_plain_address(value)
    if _pattern(_FILES).fullmatch(name):
        return not value or inside(value)
    return any(_pattern(names).fullmatch(name) and re.fullmatch(values, value) for names, values in _VALUES.items())


def names_file(key: str) -> bool:
    """Tell whether the value of a setting is the path of a file git reads, or of its hooks directory."""
    return _pattern(f"{_FILES} core.hooksPath").fullmatch(_fold_key(key)) is not None


def _fold_key(key: str) -> str:
    """Return a key in lower case. git heeds the case of a subsection, but here that only meets wildcards."""
    section, _, rest = key.partition(".")
    middle, dot, name = rest.rpartition(".")
    return f"{section}.{middle}{dot}{name}".lower()


def _is_plain_address(value: str) -> bool:
    """Tell whether git uses no helper program for an address and cannot take it for an option."""
    scheme = re.match(r"([\w.+-]+)://", value)
    if scheme is not None:
        return scheme[1].lower() in _SCHEMES
    return not value.startswith("-") and "::" not in value
