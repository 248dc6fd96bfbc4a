"""Recipes of deploy/: image, compose file, Helm chart and units, checked by linters where they are installed."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from support.chart_renderer import ChartError, render_chart, render_text
from support.paths import ROOT
from tacit.app.cli.main import app
from tacit.net.observability.metrics import MetricsEndpoint

DEPLOY = ROOT / "deploy"
CONTAINERFILE, COMPOSE = DEPLOY / "Containerfile", DEPLOY / "compose" / "compose.yaml"
CHART, UNITS = DEPLOY / "helm" / "tacit", sorted((DEPLOY / "systemd").glob("*.service"))
RECIPES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "wheels" not in path.parts)
EXPOSURE = 2.0
"""Most exposure that `systemd-analyze security` may find, on its scale from 0 to 10."""


def find_tool(name):
    """Returns the path of a program, or skips the test."""
    here = Path(sys.executable).with_name(name)
    found = str(here) if here.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)  # noqa: S603


def chart(role="server", **more):
    given = {"role": role, "roster": "federation = 'x'\n[settings]\n", "identitySecret": "keys", **more}
    return render_chart(CHART, "hospital-a", **given)


def node_chart(**more):
    return chart("node", **{"party": "hospital-a", "scenario": "rounds = 5\n", **more})


# --- all of them ---------------------------------------------------------------------------------------------------


def variables(command):
    """Returns the environment variables that a command reads."""
    group = typer.main.get_command(app)
    return {each.envvar for each in group.commands[command].params if each.envvar}


def test_every_variable_that_is_set_is_one_that_a_command_reads():
    known = variables("serve") | variables("node")
    assert {"TACIT_JOURNAL", "TACIT_PARTY", "TACIT_METRICS"} <= known
    found = {name for path in RECIPES for name in re.findall(r"\bTACIT_[A-Z_]+\b", path.read_text())}
    assert found - {"TACIT_IMAGE"} <= known
    assert len(found) > 6


def test_no_recipe_has_a_key_or_the_host_of_a_registry():
    for path in RECIPES:
        text = path.read_text()
        assert not re.search(r"PRIVATE KEY|signing_key", text), path
        hosts = re.findall(r"[\w-]+(?:\.[\w-]+)*\.(?:org|io|com|net|dev)\b(?!/)", text)
        assert [each for each in hosts if each not in ("kubernetes.io", "k8s.io", "networking.k8s.io")] == [], path


# --- the image -----------------------------------------------------------------------------------------------------


def instructions():
    text = re.sub(r"\\\n", " ", CONTAINERFILE.read_text())
    return [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_the_image_runs_as_a_numeric_user_and_gets_signals_itself():
    found = instructions()
    last = [place for place, (word, _) in enumerate(found) if word == "FROM"][-1]
    stage = found[last:]
    assert [rest for word, rest in stage if word == "USER"] == ["10001:10001"]
    assert json.loads(dict(stage)["ENTRYPOINT"]) == ["tacit"], "the exec form, so that no shell keeps signals"
    assert dict(stage)["STOPSIGNAL"] == "SIGTERM"
    assert "VOLUME" not in dict(stage), "state would go to a volume that nobody named"
    copied = [rest for word, rest in found if word in ("COPY", "ADD")]
    assert copied == ["wheels/ /wheels/", "--from=build /opt/tacit /opt/tacit"]


def test_the_health_check_of_the_image_sees_a_node_that_runs():
    command = json.loads(dict(instructions())["HEALTHCHECK"].partition(" CMD ")[2])
    assert "'127.0.0.1', 9464" in command[-1]

    async def check():
        endpoint = MetricsEndpoint(str)
        await endpoint.start("127.0.0.1:0")
        port = endpoint.url.split(":")[2].split("/")[0]
        code = command[-1].replace("9464", port)
        # A proxy in the environment must not get this request.
        proxied = {"http_proxy": "http://127.0.0.1:9", "PATH": "/usr/bin:/bin"}
        codes = []
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command[1:-1], code, env=proxied, stderr=subprocess.DEVNULL
            )
            codes.append(await process.wait())
            await endpoint.close()
        return codes

    alive, dead = asyncio.run(check())
    assert alive == 0
    assert dead != 0


@pytest.mark.long
def test_hadolint_finds_nothing_in_the_containerfile(tmp_path):
    hadolint = find_tool("hadolint")
    done = run(hadolint, CONTAINERFILE)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = tmp_path / "Containerfile"
    wrong.write_text(CONTAINERFILE.read_text().replace("USER 10001:10001", "USER 10001:10001\nRUN cd /tmp"))
    assert run(hadolint, wrong).returncode == 1


# --- compose -------------------------------------------------------------------------------------------------------


def test_each_service_of_the_compose_file_is_confined_and_has_its_own_key_only():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert list(services) == ["server", "hospital-a", "hospital-b", "hospital-c"]
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"] == "10001:10001"
        assert "ports" not in service
        keys = [each for each in service["volumes"] if ".identity" in each]
        assert keys == [f"./keys/{name}.identity:/run/keys/{name}.identity:ro"]
        assert f"{name}-state:/var/lib/tacit" in service["volumes"]
        assert service["environment"]["TACIT_IDENTITY"] == f"/run/keys/{name}.identity"
        assert service["command"][0] == ("serve" if name == "server" else "node")
        assert service["environment"].get("TACIT_PARTY", "server") == name
    assert yaml.safe_load(COMPOSE.read_text())["networks"]["federation"]["internal"] is True


# --- systemd -------------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path):
    """Copies a unit for an instance, with a program that exists here; some text may be replaced."""

    def make(path, old="", new=""):
        text = path.read_text().replace("/opt/tacit/bin/tacit", shutil.which("true"))
        assert old in text
        copy = tmp_path / path.name.replace("@", "@a")
        copy.write_text(text.replace(old, new) if old else text)
        return copy

    return make


@pytest.mark.long
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_every_line_of_a_unit(path, unit):
    analyze = find_tool("systemd-analyze")
    done = run(analyze, "verify", "--man=no", unit(path))
    assert (done.stdout + done.stderr).strip() == ""
    wrong = run(analyze, "verify", "--man=no", unit(path, "ProtectClock=", "ProtectClok="))
    assert "ProtectClok" in wrong.stderr, "a typo exits 0"


@pytest.mark.long
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_hardened(path, unit):
    def exposure(copy):
        done = run(find_tool("systemd-analyze"), "security", "--offline=true", "--no-pager", copy)
        return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)[1])

    assert exposure(unit(path)) <= EXPOSURE
    assert exposure(unit(path, "SystemCallFilter=", "#")) > EXPOSURE


# --- the chart -----------------------------------------------------------------------------------------------------


def test_the_renderer_of_the_tests_refuses_what_it_does_not_know():
    scope = {"Values": {"a": 1, "b": ""}}
    assert render_text("x\n{{- if .Values.b }}\ny\n{{- else }}\nz{{ .Values.a }}\n{{- end }}\n", scope) == "x\nz1\n"
    for text in ("{{ lookup 1 }}", "{{ .Values.c }}", "{{ if .Values.a }}", '{{ required "no" .Values.b }}'):
        with pytest.raises(ChartError):
            render_text(text, scope)


@pytest.mark.parametrize("missing", ["roster", "identitySecret", "party", "scenario"])
def test_a_value_without_which_a_party_cannot_run_is_asked_for(missing):
    with pytest.raises(ChartError, match="set"):
        node_chart(**{missing: ""})


@pytest.mark.parametrize("rendered", [chart, node_chart], ids=["server", "node"])
def test_the_pods_of_the_chart_are_confined_and_probed(rendered):
    documents = {name: yaml.safe_load(text) for name, text in rendered().items()}
    config = documents["configmap.yaml"]["data"]
    assert config["federation.toml"] == "federation = 'x'\n[settings]\n"
    assert documents["service.yaml"]["spec"]["publishNotReadyAddresses"] is True
    assert [each["port"] for each in documents["service.yaml"]["spec"]["ports"]] == [7400], "peers get no metrics"
    spec = documents["statefulset.yaml"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 1
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] == 120
    for container in pod["containers"] + pod["initContainers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    (main,) = pod["containers"]
    paths = {name: main[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    env = {each["name"]: each["value"] for each in main["env"]}
    if rendered is node_chart:
        assert main["args"] == ["node", "/etc/tacit/scenario.toml"]
        assert env["TACIT_PARTY"] == "hospital-a"
        assert env["TACIT_JOURNAL"].startswith("/var/lib/tacit/")
        assert config["scenario.toml"] == "rounds = 5\n"
    else:
        assert main["args"] == ["serve"]
        assert "scenario.toml" not in config
    assert "secret" not in [each["name"] for each in main["volumeMounts"]], "it has the copy in memory only"


@pytest.mark.long
@pytest.mark.parametrize("rendered", [chart, node_chart], ids=["server", "node"])
def test_kubernetes_accepts_what_the_chart_renders(rendered, tmp_path):
    validate = find_tool("kubernetes-validate")
    for name, text in rendered().items():
        path = tmp_path / name
        path.write_text(text)
        done = run(validate, "--strict", path)
        assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((tmp_path / "statefulset.yaml").read_text().replace("replicas: 1", "replicas: one"))
    assert run(validate, "--strict", wrong).returncode != 0


@pytest.mark.long
def test_helm_renders_the_chart_as_the_tests_do(tmp_path):
    helm = find_tool("helm")
    (tmp_path / "roster").write_text("federation = 'x'\n[settings]\n")
    (tmp_path / "scenario").write_text("rounds = 5\n")
    files = [f"--set-file={name}={tmp_path / name}" for name in ("roster", "scenario")]
    values = ["--set=role=node,party=hospital-a,identitySecret=keys", *files]
    done = run(helm, "template", "hospital-a", CHART, *values)
    assert done.returncode == 0, done.stderr
    theirs = {each["kind"]: each for each in yaml.safe_load_all(done.stdout) if each}
    ours = [yaml.safe_load(text) for text in node_chart().values()]
    assert theirs == {each["kind"]: each for each in ours}
