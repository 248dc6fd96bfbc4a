"""Telemetry of nodes: log records, metrics and spans that cover every event and contain no secret."""

import asyncio
import io
import json
import logging
import re
import sys
from base64 import b64encode
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import tacit
from support.federations import HASTY, Made, averaged, free_ports, written
from support.paths import ROOT
from support.replay_cases import CASES
from tacit.core.errors import ConfigError, MissingExtra
from tacit.core.suite import SERVER, Update
from tacit.crypto.suite import RealSuite
from tacit.net.observability import metrics, telemetry
from tacit.net.observability.metrics import CONTENT, MetricsEndpoint
from tacit.net.observability.status import STATUS
from tacit.net.observability.telemetry import LOG, Spans, log_lines

CLOCK = ("created", "msecs", "relativeCreated")
EACH = ("fedavg", "secagg", "gossip", "admm-masked", "pushsum-masked", "cesar", "rotating")


@pytest.fixture
def lines():
    """Returns the log records as JSON."""
    stream = io.StringIO()
    handler = log_lines(as_json=True, stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    LOG.removeHandler(handler)
    LOG.setLevel(logging.NOTSET)


def events(found, party):
    return [each["event"] for each in found if each["party"] == party]


async def asked(url, request=None):
    """Returns what an endpoint answers: its first lines, and the rest."""
    host, port = url.removeprefix("http://").partition("/")[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request or b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body.decode()


# --- records -------------------------------------------------------------------------------------------------------


def test_what_happens_is_told_in_order_with_fields(tmp_path, lines):
    made = Made.of(tmp_path, "secagg", 4, HASTY, threshold=3)

    async def run():
        async with made.nodes(["p0", "p1", "p2", SERVER]) as nodes:
            return await averaged(nodes, made.updates(4))

    endings = asyncio.run(run())
    found = lines()
    told = [each for each in found if each["party"] == SERVER]
    names = [each["event"] for each in told if each["event"] not in ("phase-ended", "trouble", "trouble-over")]
    assert names == ["joined", "ready", "round-begun", "party-excluded", "round-finished", "closed"]
    by_event = {each["event"]: each for each in told}
    assert by_event["joined"]["protocol"] == "secagg"
    assert by_event["party-excluded"]["peer"] == "p3"
    assert by_event["party-excluded"]["reason"] == "silent"
    assert by_event["party-excluded"]["message"] == "server: round 1 continues without p3: silent"
    assert by_event["round-finished"]["contributors"] == ["p0", "p1", "p2"]
    assert by_event["round-finished"]["sent"] == dict(endings[SERVER].sent)
    phases = [(each["kind"], each["awaited"], each["missing"]) for each in told if each["event"] == "phase-ended"]
    assert phases == [(phase.kind, phase.awaited, dict(phase.missing)) for phase in endings[SERVER].phases]
    assert phases[0] == ("AdvertiseKeys", 4, {"p3": "silent"})
    for each in found:
        assert list(each)[:4] == ["time", "level", "event", "party"]
        assert each["time"].endswith("Z")
        assert "\n" not in each["message"]


def test_a_round_that_fails_is_told_with_why(tmp_path, lines):
    made = Made.of(tmp_path, "secagg", 3, HASTY, threshold=3)

    async def run():
        async with made.nodes(["p0", "p1", SERVER]) as nodes:
            return await averaged(nodes, made.updates(4))

    failed = asyncio.run(run())
    (aborted,) = [each for each in lines() if each["event"] == "round-aborted" and each["party"] == SERVER]
    assert aborted["code"] == failed[SERVER].error.code == "not-enough"
    assert aborted["why"] == str(failed[SERVER].error)
    assert aborted["level"] == "warning"


def test_a_round_that_was_cut_off_is_told_and_not_counted_twice(tmp_path, lines):
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes(["p0", "p1"]) as nodes:
            work = [asyncio.create_task(nodes[each].average(made.updates(4)[each])) for each in nodes]
            nodes["p0"]._rendezvous.peers = nodes["p1"]._rendezvous.peers = ()  # who is missing is not waited for
            nodes["p0"]._rendezvous.may_begin = nodes["p1"]._rendezvous.may_begin = lambda number: number > 0
            async with asyncio.timeout(30):
                while not all(node.rounds for node in nodes.values()):
                    nodes["p0"]._rendezvous.needed = nodes["p1"]._rendezvous.needed = 0
                    await asyncio.sleep(0.01)
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        async with made.nodes() as nodes:
            resumed = nodes["p0"].resuming
            return resumed, await averaged(nodes, made.updates(4)), nodes["p0"].telemetry

    resumed, endings, counted = asyncio.run(run())
    assert resumed
    assert [ending.error for ending in endings.values()] == [None] * 3
    told = [name for name in events(lines(), "p0") if not name.startswith("trouble")]
    assert told.count("round-begun") == 1
    assert told.index("closed") < told.index("round-resumed") < told.index("round-finished")
    assert counted.results == {"averaged": 1}


def test_trouble_and_its_end_are_told_once_each(lines):
    told, line = telemetry.Telemetry("a", "three", "gossip"), SimpleNamespace(trouble="", reached=1, retries=0)
    for trouble, reached in (("", 1), ("nobody", 1), ("no answer", 1), ("", 1), ("nobody", 1), ("", 2), ("", 2)):
        line.trouble, line.arrivals = trouble, reached
        told.report_links({"b": line})
    assert [(each["event"], each["peer"]) for each in lines()] == [("trouble", "b"), ("trouble-over", "b")]
    assert told.troubles == {"b": 1}


def test_a_lost_journal_is_told_on_both_sides(tmp_path, lines):
    made = Made.of(tmp_path, "gossip", 3, HASTY)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
        (tmp_path / "p2.rounds").rename(tmp_path / "lost")
        async with made.nodes() as nodes:
            work = (nodes[party].average(made.updates(4, 2)[party]) for party in nodes)
            await asyncio.gather(*work, return_exceptions=True)
            return nodes["p0"].status(), nodes["p2"].status()

    here, there = asyncio.run(run())
    (apart,) = [each for each in lines() if each["event"] == "peer-apart" and each["party"] == "p0"]
    assert apart["peer"] == "p2"
    assert "has lost its journal" in apart["why"]
    assert {each.party: each.trouble for each in here.peers}["p2"] == apart["why"]
    (refused,) = [each for each in lines() if each["event"] == "not-averaged" and each["party"] == "p2"]
    assert refused["code"] == "journal"
    # Both others say so, and who of them was heard first is chance.
    assert "p2, which has lost its journal" in refused["why"]
    assert "p2, which has lost its journal" in there.trouble


def test_lines_for_people_have_only_what_somebody_has_to_see_to(tmp_path):
    stream, made = io.StringIO(), Made.of(tmp_path, "gossip", 4, HASTY)
    handler = log_lines(stream=stream)

    async def run():
        async with made.nodes(["p0", "p1", "p2"]) as nodes:
            return await averaged(nodes, made.updates(4))

    try:
        asyncio.run(run())
        said = stream.getvalue().splitlines()
        assert "p0: round 1 continues without p3: silent" in said
        assert not [line for line in said if "begun" in line]
        second = log_lines(as_json=True, stream=io.StringIO())
        assert [each for each in LOG.handlers if isinstance(each, type(handler))] == [second]
        LOG.removeHandler(second)
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(logging.NOTSET)


def test_a_stream_that_cannot_be_written_disturbs_nobody(tmp_path):
    class Full(io.StringIO):
        tried = 0

        def write(self, _):
            self.tried += 1
            raise OSError(28, "No space left on device")

    stream, made = Full(), Made.of(tmp_path, "gossip", 3)
    handler = log_lines(as_json=True, stream=stream)
    try:

        async def run():
            async with made.nodes() as nodes:
                return await averaged(nodes, made.updates(4))

        assert [ending.error for ending in asyncio.run(run()).values()] == [None] * 3
        assert stream.tried > 3
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(logging.NOTSET)


# --- secrets -------------------------------------------------------------------------------------------------------


def spellings(value):
    """Yields how a secret could be written."""
    if isinstance(value, bytes):
        yield from (value.hex(), b64encode(value).decode().rstrip("="), repr(value)[2:-1], repr(list(value))[1:-1])
        yield str(int.from_bytes(value))
    else:
        yield f"{value:.6g}"
        yield f"{value:.4f}"


def plain(record):
    """Returns the content of a record without times, whose digits could match anything."""
    return repr({name: value for name, value in vars(record).items() if name not in CLOCK})


def found_in(text, secrets):
    return [name for name, value in secrets for each in spellings(value) if each in text]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EACH)
def test_nothing_that_is_told_has_a_secret_in_it(name, tmp_path, caplog, monkeypatch, lines):
    case, secrets = CASES[name], []
    made = Made.of(tmp_path, case.protocol, case.parties, **msgspec.to_builtins(case.options, enc_hook=vars))
    for party, mine in made.credentials.items():
        secrets += [
            (f"key of {party}", key.reveal()) for key in (mine.identity.signing, mine.identity.channel, mine.tls)
        ]
        secrets += [(f"seed of {party}", made.seed(party, number)) for number in (1, 2)]
    honest = RealSuite.share, RealSuite.agree, RealSuite.seed

    def share(suite, secret, *rest):
        shares = honest[0](suite, secret, *rest)
        secrets.extend([("shared secret", secret.reveal()), *(("share", each) for each in shares.values())])
        return shares

    def kept(place):
        def call(suite, *rest):
            secret = honest[place](suite, *rest)
            secrets.append(("key of a round", secret.reveal()))
            return secret

        return call

    monkeypatch.setattr(RealSuite, "share", share)
    monkeypatch.setattr(RealSuite, "agree", kept(1))
    monkeypatch.setattr(RealSuite, "seed", kept(2))
    caplog.set_level(logging.DEBUG)
    updates = {
        number: {
            party: Update(each.vector + 15)  # which no phase takes in seconds
            for party, each in made.updates(5, number).items()
        }
        for number in (1, 2)
    }
    vectors = {
        number: {party: each.vector.copy() for party, each in found.items()} for number, found in updates.items()
    }

    async def run():
        said = []
        async with made.nodes() as nodes:
            for number in (1, 2):
                endings = await averaged(nodes, updates[number])
                for party, node in nodes.items():
                    said += [node.metrics._text(), msgspec.json.encode(node.status()).decode(), repr(node.status())]
                    said.append(repr(endings[party].error))
                for party, vector in vectors[number].items():
                    secrets.append((f"vector of {party}", vector.tobytes()))
                    secrets.extend((f"entry of {party}", entry) for entry in vector)
                secrets.extend(("entry of an average", entry) for entry in endings[made.roster.names[0]].average)
            await asyncio.sleep(0)
        return said

    said = asyncio.run(run())
    said += [json.dumps(lines()), caplog.text, *map(plain, caplog.records)]
    said += [path.read_text() for path in tmp_path.glob(f"*/{STATUS}")]
    text = "\n".join(said)
    assert len(secrets) > 5 * case.parties
    assert "round-finished" in text
    assert "tacit_rounds_total" in text
    assert found_in(text, secrets) == []
    for what, value in secrets:  # and it would be found
        for each in spellings(value):
            assert found_in(f"{text} {each} {text}", [(what, value)])[:1] == [what]


# --- metrics -------------------------------------------------------------------------------------------------------


def samples(text):
    """Returns the values in a text of metrics, by name and labels."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Returns the metrics of a server after a round that one of four parties missed, and the ending."""
    made = Made.of(tmp_path_factory.mktemp("measured"), "secagg", ["a", "b", 'c"\\', "d"], HASTY, threshold=3)

    async def run():
        node, nodes = made.node(SERVER), {}
        try:
            await node.start(metrics="127.0.0.1:0")
            async with made.nodes(["a", "b", 'c"\\']) as nodes:
                endings = await averaged({SERVER: node, **nodes}, made.updates(4))
                return *await asked(node.metrics.url), endings[SERVER]
        finally:
            await node.close()

    return asyncio.run(run())


def test_metrics_say_what_rounds_cost_and_who_is_missing(measured):
    head, text, ending = measured
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert f"Content-Type: {CONTENT}\r\n" in head
    assert f"Content-Length: {len(text.encode())}" in head
    assert text.endswith("\n# EOF\n")
    found = samples(text)
    info = f'federation="try",party="server",protocol="secagg",version="{tacit.__version__}"'
    assert found[f"tacit_node_info{{{info}}}"] == 1
    assert found["tacit_round"] == 1
    assert found['tacit_rounds_total{result="averaged"}'] == 1
    assert found['tacit_exclusions_total{reason="silent"}'] == 1
    assert found['tacit_troubles_total{peer="a"}'] == 0
    assert 'tacit_heard_seconds{peer="d"}' not in found
    assert 'tacit_heard_seconds{peer="c\\"\\\\"}' in found
    for kind, size in ending.sent.items():
        assert found[f'tacit_sent_bytes_total{{class="{kind}"}}'] == size
    for phase in ending.phases:
        assert found[f'tacit_phase_seconds_count{{kind="{phase.kind}"}}'] == 1
        assert found[f'tacit_phase_seconds_sum{{kind="{phase.kind}"}}'] == phase.seconds
        assert found[f'tacit_phase_seconds_bucket{{kind="{phase.kind}",le="+Inf"}}'] == 1


def test_metrics_are_what_openmetrics_says(measured):
    families = {family.name: family for family in text_string_to_metric_families(measured[1])}
    assert families["tacit_phase_seconds"].type == "histogram"
    assert families["tacit_phase_seconds"].unit == "seconds"
    assert families["tacit_sent_bytes"].unit == "bytes"
    assert families["tacit_node"].type == "info"
    assert all(family.documentation for family in families.values())
    peers = {sample.labels["peer"] for sample in families["tacit_parcels_waiting"].samples}
    assert peers == {"a", "b", 'c"\\', "d"}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 200),
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /" + b"x" * 100_000, 400),
    ],
)
def test_requests_that_are_none_are_answered_as_such(request_, code):
    async def run():
        endpoint = MetricsEndpoint(lambda: "# EOF\n")
        await endpoint.start("127.0.0.1:0")
        try:
            return await asked(endpoint.url, request_)
        finally:
            await endpoint.close()

    head, body = asyncio.run(run())
    assert head.startswith(f"HTTP/1.1 {code} ")
    assert (body == "") == request_.startswith(b"HEAD")


def test_health_and_readiness_are_answered_with_the_obstacle():
    obstacles = ["", "the disk is full"]

    async def run():
        endpoint = MetricsEndpoint(lambda: "# EOF\n", lambda: obstacles[0])
        await endpoint.start("127.0.0.1:0")
        found = []
        try:
            for path in ("healthz", "readyz"):
                found.append(await asked(endpoint.url, f"GET /{path} HTTP/1.1\r\n\r\n".encode()))
            obstacles.pop(0)
            for path in ("healthz", "readyz"):
                found.append(await asked(endpoint.url, f"GET /{path} HTTP/1.1\r\n\r\n".encode()))
        finally:
            await endpoint.close()
        return found

    found = asyncio.run(run())
    assert [head.split()[1] for head, _ in found] == ["200", "200", "200", "503"]
    assert found[-1][1] == "the disk is full\n"


def test_a_server_that_drains_finishes_its_round_and_begins_no_other(tmp_path):
    made = Made.of(tmp_path, "secagg", 3)

    async def run():
        async with made.nodes() as nodes:
            server, endings = nodes["server"], []
            parties = {name: node for name, node in nodes.items() if name != "server"}

            def report(ending):
                endings.append(ending)

            serving = asyncio.create_task(server.serve(report))
            rounds = [asyncio.create_task(node.average(made.updates(4)[name])) for name, node in parties.items()]
            while not server.resuming:
                await asyncio.sleep(0.001)
            assert server.lifecycle.obstacle == ""
            server.drain()
            assert server.lifecycle.obstacle == "stopping"
            found = await asyncio.gather(*rounds)
            async with asyncio.timeout(10):
                await serving
            return endings, found, server.rounds

    endings, found, rounds = asyncio.run(run())
    assert rounds == 1
    assert [ending.error for ending in found] == [None] * 3
    assert len(endings) == 1


def test_a_server_that_drains_between_rounds_ends_at_once(tmp_path):
    made = Made.of(tmp_path, "secagg", 3)

    async def run():
        async with made.nodes(["server"]) as nodes:
            serving = asyncio.create_task(nodes["server"].serve(lambda _: None))
            await asyncio.sleep(0.2)
            nodes["server"].drain()
            async with asyncio.timeout(5):
                await serving
            return nodes["server"].rounds

    assert asyncio.run(run()) == 0


def test_slow_and_many_callers_do_not_disturb_a_node(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "PATIENCE", 0.5)
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes() as nodes:
            await nodes["p0"].metrics.start("127.0.0.1:0")
            url = nodes["p0"].metrics.url
            port = int(url.rsplit(":", 1)[1].partition("/")[0])
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5 * metrics.MOST)]
            most = len(nodes["p0"].metrics._open)
            endings = await averaged(nodes, made.updates(4))
            for reader, _ in held:  # every one is hung up on: at once, or when its time is up
                assert await reader.read() == b""
            answered = await asked(url)
            for _, writer in held:
                writer.close()
            return most, endings, answered

    most, endings, (head, _) = asyncio.run(run())
    assert most <= metrics.MOST
    assert [ending.error for ending in endings.values()] == [None] * 3
    assert head.startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize("address", ["", "here", "localhost:", "localhost:x", "localhost:70000", "::1:9464"])
def test_what_is_no_place_for_metrics_is_said(address):
    with pytest.raises(ConfigError, match="is not an address for metrics; try: host:port, such as"):
        asyncio.run(MetricsEndpoint(str).start(address))


def test_a_port_alone_is_of_this_machine():
    (port,) = free_ports(1)

    async def run():
        endpoints = [MetricsEndpoint(str), MetricsEndpoint(str)]
        try:
            await endpoints[0].start(f":{port}")
            with pytest.raises(
                ConfigError, match=rf"metrics cannot be served at {port}: .*; try: use another host:port"
            ):
                await endpoints[1].start(str(port))
            return endpoints[0].url
        finally:
            for each in endpoints:
                await each.close()

    assert asyncio.run(run()) == f"http://127.0.0.1:{port}/metrics"


def test_metrics_without_their_extra_are_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"^prometheus-client is not installed; try: pip .*'tacit\[metrics\]'$"):
        asyncio.run(MetricsEndpoint(str).start("127.0.0.1:0"))


def test_a_peer_gives_metrics_too(tmp_path):
    path, (port,) = written(Made.of(tmp_path, "gossip", ["a", "b", "c"])), free_ports(1)
    with tacit.join(path, me="a", metrics=f"127.0.0.1:{port}"):
        head, text = asyncio.run(asked(f"http://127.0.0.1:{port}/metrics"))
    assert head.startswith("HTTP/1.1 200 ")
    assert samples(text)["tacit_round"] == 0


# --- spans ---------------------------------------------------------------------------------------------------------


class Span:
    """A span as a tracer in memory has it."""

    def __init__(self, name, parent, attributes):
        self.name, self.parent, self.attributes, self.status, self.ended = name, parent, dict(attributes), "", 0

    def set_attributes(self, more):
        self.attributes |= more

    def set_status(self, _, text):
        self.status = text

    def end(self):
        self.ended += 1


@pytest.fixture
def spans(monkeypatch):
    """A stand-in for OpenTelemetry that records spans, with the part of its interface that is used."""
    begun = []

    def start_span(name, context=None, attributes=None):
        begun.append(Span(name, context, attributes))
        return begun[-1]

    trace = ModuleType("opentelemetry.trace")
    trace.get_tracer = lambda _: SimpleNamespace(start_span=start_span)
    trace.set_span_in_context = lambda span: span
    trace.StatusCode = SimpleNamespace(ERROR="error")
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    return begun


def test_a_round_is_a_span_with_its_phases_below_it(tmp_path, spans):
    made = Made.of(tmp_path, "secagg", 4, HASTY, threshold=3)

    async def run():
        async with made.nodes(["p0", "p1", "p2", SERVER]) as nodes:
            return await averaged(nodes, made.updates(4))

    endings = asyncio.run(run())
    assert [span.ended for span in spans] == [1] * len(spans)
    rounds = {span.attributes["tacit.party"]: span for span in spans if span.name == "tacit.round"}
    assert rounds.keys() == endings.keys()
    assert rounds[SERVER].attributes["tacit.contributors"] == 3
    for party, ending in endings.items():
        below = [span for span in spans if span.parent is rounds[party]]
        assert {span.name for span in below} == {"tacit.phase"}
        assert [(span.attributes["tacit.kind"], span.attributes["tacit.awaited"]) for span in below] == [
            (phase.kind, phase.awaited) for phase in ending.phases
        ]
    assert next(span for span in spans if span.parent is rounds[SERVER]).attributes["tacit.missing"] == ["p3"]


def test_a_round_that_fails_is_a_span_that_says_so(tmp_path, spans):
    made = Made.of(tmp_path, "secagg", 3, HASTY, threshold=3)

    async def run():
        async with made.nodes(["p0", "p1", SERVER]) as nodes:
            await averaged(nodes, made.updates(4))

    asyncio.run(run())
    statuses = {span.attributes["tacit.party"]: span.status for span in spans if span.name == "tacit.round"}
    assert statuses[SERVER] == "not-enough"


def test_the_real_tracer_takes_them(tmp_path, monkeypatch):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))

    asyncio.run(run())
    done = exporter.get_finished_spans()
    rounds = {span.context.span_id: span for span in done if span.name == "tacit.round"}
    assert sorted(span.attributes["tacit.party"] for span in rounds.values()) == ["p0", "p1", "p2"]
    phases = [span for span in done if span.name == "tacit.phase"]
    assert {span.parent.span_id for span in phases} == rounds.keys()
    assert all(span.end_time >= span.start_time for span in done)


def test_nothing_is_imported_unless_somebody_asked_for_spans(monkeypatch):
    tried = []

    def missing(name):
        tried.append(name)
        raise ImportError

    monkeypatch.setattr(telemetry.importlib, "import_module", missing)
    monkeypatch.delitem(sys.modules, "opentelemetry", raising=False)
    for name in [name for name in telemetry.os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    assert Spans.detect() is None
    assert tried == []
    monkeypatch.setenv("OTEL_SERVICE_NAME", "tacit")
    assert Spans.detect() is None
    assert tried == ["opentelemetry.trace"]


# --- the page ------------------------------------------------------------------------------------------------------


def test_the_page_has_every_event_and_every_metric(measured):
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    shown = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    events_ = set(re.findall(r'logging\.[A-Z]+,\s*"([a-z-]+)"', Path(telemetry.__file__).read_text(encoding="utf-8")))
    families = dict(re.findall(r"^# TYPE (\w+) (\w+)$", measured[1], re.MULTILINE))
    behind = {"counter": "_total", "info": "_info"}
    assert len(events_) > 10
    assert shown == events_ | {f"{name}{behind.get(kind, '')}" for name, kind in families.items()}
