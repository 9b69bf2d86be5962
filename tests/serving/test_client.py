"""The client against a server that misbehaves in every way we have a name for."""

import logging
import socket
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from kvcore.serving import Client, Key, Timeouts, policy
from kvcore.serving.addresses import Target
from kvcore.serving.client import clock_ahead, retry_after
from kvcore.serving.errors import (
    BadRequest,
    Dropped,
    KeyRefused,
    NoConnection,
    NoSuchModel,
    NotAnApi,
    ServerFault,
    ServingError,
    Stopped,
    TimedOut,
    TooManyRequests,
)
from kvcore.serving.transport import PinnedTransport
from tests.serving.fake_server import MODEL, fake_server

SECRET = "sk-test-5f3a9c0e7b"


def test_a_whole_answer(serve):
    client, server = serve(seconds_per_token=0.005)
    answer = client.ask(MODEL, "one two three", 6)
    assert answer.done
    assert answer.finish_reason == "length"
    assert answer.text == "word " * 6
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (3, 6, 0)
    assert len(answer.piece_seconds) == 6
    assert answer.first_token_seconds == answer.piece_seconds[0]
    assert answer.seconds_per_token >= 0.005
    assert answer.total_seconds >= answer.piece_seconds[-1]
    assert server.behaviour.requests[0]["stream_options"] == {"include_usage": True}


def test_the_role_chunk_is_not_the_first_token(serve):
    client, _ = serve(seconds_per_word=0.02)
    assert client.ask(MODEL, "a b c d e", 1).first_token_seconds > 0.09


def test_models_and_metrics(serve):
    client, _ = serve()
    (model,) = client.models()
    assert (model.name, model.owner, model.max_model_len) == (MODEL, "vllm", 4096)
    assert client.metrics().kv_usage == 0
    assert client.extra("/version") is None


def test_nobody_there():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    target = policy(None, app_is_local=True).target(f"http://127.0.0.1:{port}")
    with Client(target) as client, pytest.raises(NoConnection, match="Nobody answers"):
        client.models()


@pytest.mark.parametrize(
    ("fault", "error", "sentence"),
    [
        ("html", NotAnApi, "a web page, not with an API"),
        ("hang", TimedOut, "sent nothing for"),
        ("drop", Dropped, "broke the connection after 4 pieces"),
        ("end-early", Dropped, "ended the stream before the answer was whole after 4 pieces"),
        ("stall", TimedOut, "given up after 4 pieces"),
        ("error-event", ServerFault, "CUDA out of memory"),
        ("not-json", NotAnApi, "not JSON"),
        ("endless", ServerFault, "more than the 8 tokens"),
    ],
)
def test_each_fault_has_its_sentence(serve, fault, error, sentence):
    client, _ = serve(fault=fault)
    with pytest.raises(error, match=sentence):
        client.ask(MODEL, "one two three", 8)


def test_what_came_before_a_drop_is_kept(serve):
    client, _ = serve(fault="drop")
    with pytest.raises(Dropped) as caught:
        client.ask(MODEL, "one two three", 8)
    assert len(caught.value.partial.piece_seconds) == 4
    assert caught.value.partial.first_token_seconds > 0


def test_a_drop_after_the_end_is_no_fault(serve):
    client, server = serve()
    server.behaviour.usage = False
    assert client.ask(MODEL, "one", 2).usage is None


@pytest.mark.parametrize("fault", ["html", "hang"])
def test_faults_of_the_model_list(serve, fault):
    client, _ = serve(fault=fault)
    with pytest.raises(ServingError):
        client.models()


def test_a_list_that_is_no_list_of_models(serve):
    client, _ = serve(fault="refuse-with", status=200, body='{"hello": "world"}')
    with pytest.raises(NotAnApi, match="not with a list of models"):
        client.models()
    with pytest.raises(NotAnApi, match="in one piece"):
        client.ask(MODEL, "one", 1)


def test_half_characters_of_a_server_can_be_shown(serve):
    body = r'{"data": [{"id": "\ud800m"}, {"id": "n\udfff"}, {"id": "\ud83d\ude00"}]}'
    client, _ = serve(fault="refuse-with", status=200, body=body)
    assert [model.name for model in client.models()] == ["?m", "n?", "\N{GRINNING FACE}"]
    refusing, _ = serve(fault="refuse-with", status=400, body=r'{"error": {"message": "\ud800"}}')
    with pytest.raises(BadRequest) as refused:
        refusing.ask(MODEL, "one", 1)
    str(refused.value).encode()


def test_deep_json_is_no_api(serve):
    client, _ = serve(fault="refuse-with", status=200, body="[" * 200_000)
    with pytest.raises(NotAnApi):
        client.models()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, '{"error": {"message": "The model `x` does not exist."}}', NoSuchModel),
        (400, "{\"error\": \"Server is pinned to 'a'; requested 'fake-1'\"}", NoSuchModel),
        (400, '{"object": "error", "message": "max_tokens is too large"}', BadRequest),
        (422, '{"detail": [{"msg": "Field required"}]}', BadRequest),
        (413, "", BadRequest),
        (500, '{"error": {"message": "boom"}}', ServerFault),
        (502, "<html>Bad gateway</html>", ServerFault),
        (503, "", ServerFault),
    ],
)
def test_refusals(serve, status, body, error):
    client, _ = serve(fault="refuse-with", status=status, body=body)
    with pytest.raises(error) as caught:
        client.ask(MODEL, "one", 1)
    assert str(status) in str(caught.value)


def test_a_wrong_model(serve):
    client, _ = serve()
    with pytest.raises(NoSuchModel, match="gpt-9"):
        client.ask("gpt-9", "one", 1)


@pytest.mark.parametrize(("header", "wait"), [("7", 7.0), (None, None), ("soon", None)])
def test_a_limit_with_and_without_retry_after(serve, header, wait):
    client, _ = serve(limit=1, retry_after=header)
    with pytest.raises(TooManyRequests) as caught:
        client.ask(MODEL, "one", 1)
    assert caught.value.retry_after == wait
    assert client.ask(MODEL, "one", 1).done


def test_retry_after_as_a_date_is_read_on_the_servers_clock():
    here = "Sun, 29 Nov 2026 12:00:00 GMT"
    later = "Sun, 29 Nov 2026 12:00:30 GMT"
    assert retry_after(later, here) == 30
    assert retry_after(here, later) == 0
    assert retry_after("9" * 30) is None
    assert retry_after("-5") is None


def test_the_servers_clock(serve):
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert clock_ahead("Sun, 29 Nov 2026 13:00:00 GMT", now) == 3600
    assert clock_ahead(None) is None
    assert clock_ahead("yesterday") is None
    client, _ = serve(clock_ahead=-timedelta(days=400).total_seconds())
    answer = client.ask(MODEL, "one two", 3)
    assert answer.clock_ahead_seconds < -3e7
    assert 0 < answer.first_token_seconds < 5, "times are taken on this machine's clock alone"


def test_no_usage_and_no_metrics(serve):
    client, _ = serve(usage=False, metrics=False)
    answer = client.ask(MODEL, "one two three", 5)
    assert answer.prompt_tokens is None
    assert answer.cached_tokens is None
    assert answer.output_tokens == 5
    assert client.metrics() is None


def test_unknown_is_not_zero(serve):
    client, _ = serve(cached_details=False)
    answer = client.ask(MODEL, "one two three", 1)
    assert answer.prompt_tokens == 3
    assert answer.cached_tokens is None


def test_the_newer_name_for_the_length_is_tried(serve):
    client, server = serve(
        fault="refuse-with",
        status=400,
        body='{"error": {"message": "Use \'max_completion_tokens\' instead."}}',
    )
    with pytest.raises(BadRequest):
        client.ask(MODEL, "one", 4)
    first, second = server.behaviour.requests
    assert first["max_tokens"] == second["max_completion_tokens"] == 4
    assert "max_tokens" not in second


# Redirects and names


@pytest.mark.parametrize("place", ["http://169.254.169.254/latest", "http://10.0.0.1/", "/other"])
def test_redirects_are_not_followed(serve, place):
    client, server = serve(fault="redirect", redirect_to=place)
    with pytest.raises(NotAnApi, match="redirects are not followed"):
        client.models()
    with pytest.raises(NotAnApi, match="redirects are not followed"):
        client.ask(MODEL, "one", 1)
    assert len(server.behaviour.keys_seen) == 2, "one request each, none after it"


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch):
    """The name would lead elsewhere by now; it is not asked again."""

    def elsewhere(host, *args, **options):
        assert host == "127.0.0.1", f"{host} was resolved again"
        return real(host, *args, **options)

    with fake_server() as server:
        port = server.server_address[1]
        allowed = policy(None, app_is_local=True)
        target = allowed.target(f"http://rebind.example:{port}", lambda host, p: ["127.0.0.1"])
        real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", elsewhere)
        with Client(target) as client:
            assert client.models()[0].name == MODEL
            assert client.ask(MODEL, "one", 1).done


def test_another_host_is_refused_by_the_transport():
    target = Target("http", "rebind.example", 1, "127.0.0.1")
    with PinnedTransport(target, 1) as transport, pytest.raises(httpx2.ConnectError):
        transport.handle_request(httpx2.Request("GET", "http://169.254.169.254/latest"))


def test_proxies_of_the_environment_are_not_used(serve, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    client, _ = serve()
    assert client.models()


# Stop


def test_abort_ends_a_silent_answer_at_once(serve):
    client, _ = serve(fault="stall", timeouts=Timeouts(silence=30, answer=60))
    caught = []

    def ask():
        try:
            client.ask(MODEL, "one", 8)
        except ServingError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not client._transport._streams:
        time.sleep(0.01)
    time.sleep(0.2)
    client.abort()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(caught[0], Stopped)


# The key


def everything_said(error):
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


def test_the_key_reaches_the_server_and_nothing_else(serve, caplog):
    caplog.set_level(logging.DEBUG)
    client, server = serve(key=SECRET)
    client.models()
    client.ask(MODEL, "one", 1)
    assert set(server.behaviour.keys_seen) == {f"Bearer {SECRET}"}
    assert SECRET not in caplog.text
    assert SECRET not in repr(client) + repr(vars(client)) + str(Key(SECRET)) + repr(Key(SECRET))


def test_a_refused_key_is_not_repeated(caplog):
    caplog.set_level(logging.DEBUG)
    with fake_server(key="another") as server:
        target = policy(None, app_is_local=True).target(server.url)
        with Client(target, Key(SECRET)) as client:
            for call in (client.models, lambda: client.ask(MODEL, "one", 1)):
                with pytest.raises(KeyRefused, match="refused the key") as caught:
                    call()
                assert SECRET[3:9] not in everything_said(caught.value)
        with Client(target) as client, pytest.raises(KeyRefused, match="wants a key"):
            client.models()
    assert SECRET not in caplog.text


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_server_that_echoes_the_key_is_not_quoted(serve, status):
    echo = f'{{"error": {{"message": "bad header: Bearer {SECRET}"}}}}'
    client, _ = serve(key=SECRET, fault="refuse-with", status=status, body=echo)
    with pytest.raises(ServingError) as caught:
        client.ask(MODEL, "one", 1)
    assert SECRET not in everything_said(caught.value)
    assert "Bearer" not in str(caught.value)


@pytest.mark.parametrize("typed", ["sk-abc\ndef", "sk abc", "sk-é", "sk-\x00abc", "sk-abc\r\nX: y"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(typed):
    with pytest.raises(KeyRefused) as caught:
        Key(typed)
    assert "sk" not in everything_said(caught.value).replace("task", "").split("KeyRefused: ")[1]


def test_spaces_around_a_key_are_dropped():
    assert Key("  sk-abc \n").value == "sk-abc"
    assert not Key("   ")
