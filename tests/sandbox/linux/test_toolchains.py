"""Compilers, runtimes and package managers work in the sandbox, without network and with what lies in the workspace."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path

import pytest

from surehand.sandbox import protocol
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(not protocol.available(), reason="nothing contains commands here")

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1.0"
"""
# As small as a build backend can be: what is tried is pip, not a backend that would have to be installed.
BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tiny-1.0-py3-none-any.whl"
    files = {
        "tiny.py": "WORD = 'from a wheel'\\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "tiny-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""
MAVEN = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test.example</groupId>
  <artifactId>tiny</artifactId>
  <version>1.0</version>
</project>
"""
TOOLCHAINS: dict[str, tuple[str, dict[str, str], str, str]] = {
    "pip": (
        sys.executable,
        {"tiny/pyproject.toml": PROJECT, "tiny/backend.py": BACKEND},
        f"{sys.executable} -m pip install -q --no-index --no-compile --target lib ./tiny"
        f" && cd lib && {sys.executable} -c 'import tiny; print(tiny.WORD)'",
        "from a wheel",
    ),
    "cargo": (
        "cargo",
        {
            "Cargo.toml": '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n',
            "src/main.rs": 'fn main() { println!("from rust"); }\n',
        },
        "cargo build --offline --quiet && cargo test --offline --quiet > tests.log && cargo run --offline --quiet",
        "from rust",
    ),
    "go": (
        "go",
        {"go.mod": "module tiny\n", "main.go": 'package main\nfunc main() { println("from go") }\n'},
        "GOFLAGS=-mod=mod GOPROXY=off go run . 2>&1",
        "from go",
    ),
    "go and its checks": (
        "go",
        {
            "go.mod": "module example.test/tiny\n\ngo 1.18\n",
            "word/word.go": 'package word\n\nfunc Say() string { return "from a package" }\n',
            "word/word_test.go": 'package word\n\nimport "testing"\n\nfunc TestSay(t *testing.T) { t.Log(Say()) }\n',
            "main.go": 'package main\n\nimport (\n\t"fmt"\n\n\t"example.test/tiny/word"\n)\n\n'
            "func main() { fmt.Println(word.Say()) }\n",
        },
        "go list ./... && go vet ./... && go test ./... && go build -o tiny . && ./tiny",
        "from a package",
    ),
    "mvn": (
        "mvn",
        {"pom.xml": MAVEN},
        "mvn -o -q -B validate && echo from maven",
        "from maven",
    ),
    "venv": (
        sys.executable,
        {"tiny/pyproject.toml": PROJECT, "tiny/backend.py": BACKEND},
        f"{sys.executable} -m venv v && v/bin/pip install -q --no-index --no-compile ./tiny"
        " && v/bin/python -c 'import tiny; print(tiny.WORD)'",
        "from a wheel",
    ),
    "java": (
        "javac",
        {"Tiny.java": 'class Tiny { public static void main(String[] a) { System.out.println("from java"); } }\n'},
        "javac Tiny.java && java -cp . Tiny",
        "from java",
    ),
    "node": (
        "node",
        {"main.js": "const fs = require('fs'); fs.writeFileSync('out', 'x'); console.log('from node');\n"},
        "node main.js && cat out > /dev/null",
        "from node",
    ),
    "npm": (
        "npm",
        {
            "tiny/package.json": '{"name": "tiny", "version": "1.0.0", "main": "index.js"}\n',
            "tiny/index.js": "module.exports = 'from a package';\n",
            "package.json": '{"name": "own", "version": "1.0.0", "scripts": {"say": "node say.js"}}\n',
            "say.js": "console.log(require('tiny'));\n",
        },
        "npm install --offline --no-audit --no-fund --silent ./tiny && npm run --silent say",
        "from a package",
    ),
}


@pytest.mark.parametrize("name", TOOLCHAINS)
async def test_a_toolchain_builds_and_runs_a_small_project(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, files, command, said = TOOLCHAINS[name]
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    rustup = os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".rustup")
    monkeypatch.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME", rustup))  # the home of a test has none
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": command, "timeout": 110_000})
        assert result.ok, result.output
        assert result.data["sandbox"]["active"]
        assert result.data["stdout"].strip().endswith(said)
