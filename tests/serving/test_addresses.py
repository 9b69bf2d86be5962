"""Which addresses may be called: every way to write one that leads where it should not."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.serving import AddressError, app_is_local, policy
from kvcore.serving.addresses import embedded, is_loopback_host, never_callable

OFF = policy("off", app_is_local=True)
LOCAL = policy(None, app_is_local=True)
CLOSED = policy(None, app_is_local=False)


def answers(*addresses):
    return lambda host, port: list(addresses)


def nobody(host, port):
    raise AssertionError(f"{host} was resolved")


# What the operator's setting means


@pytest.mark.parametrize("setting", [None, "", "  ", ","])
def test_a_public_app_calls_nothing_by_default(setting):
    closed = policy(setting, app_is_local=False)
    assert closed.is_off
    with pytest.raises(AddressError, match="WORKBENCH_SERVERS"):
        closed.target("http://127.0.0.1:8000", nobody)


def test_a_local_app_calls_this_machine_by_default():
    assert LOCAL.target("http://127.0.0.1:8000", nobody).address == "127.0.0.1"
    assert LOCAL.target("http://[::1]:8000", nobody).address == "::1"
    assert LOCAL.target("127.8.9.10:8000", nobody).address == "127.8.9.10"
    found = LOCAL.target("http://localhost:8000/v1", answers("::1", "127.0.0.1"))
    assert (found.host, found.address) == ("localhost", "127.0.0.1")


def test_off_is_off_for_a_local_app_too():
    with pytest.raises(AddressError, match="switched off"):
        OFF.target("http://127.0.0.1:8000", nobody)


@pytest.mark.parametrize(
    "setting", ["not a name!", "http://", "10.0.0.0/99", "*.*", "1.2.3", "a@b"]
)
def test_a_setting_that_cannot_be_read_is_refused(setting):
    with pytest.raises(AddressError):
        policy(setting, app_is_local=True)


@pytest.mark.parametrize(
    ("listens", "headers", "local"),
    [
        ("127.0.0.1", {}, True),
        ("localhost", {"Host": "localhost:8501"}, True),
        ("::1", {"Host": "[::1]:8501"}, True),
        (None, {}, False),
        ("", {}, False),
        ("0.0.0.0", {}, False),
        ("::", {}, False),
        ("192.168.1.5", {}, False),
        ("unix:///run/app.sock", {}, False),
        ("127.0.0.1", {"X-Forwarded-For": "8.8.8.8"}, False),
        ("127.0.0.1", {"forwarded": "for=8.8.8.8"}, False),
        ("127.0.0.1", {"Host": "workbench.example.com"}, False),
        ("127.0.0.1", {"Host": "127.0.0.1.nip.io"}, False),
    ],
)
def test_who_can_reach_the_app(listens, headers, local):
    assert app_is_local(listens, headers) is local


# Forms of an address

FORMS_OF_LOOPBACK = [
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "0",
    "00000000177.0.0.1",
    "127.0.0.01",
    "127.0.0.1.0x1",
]


@pytest.mark.parametrize("host", FORMS_OF_LOOPBACK)
@pytest.mark.parametrize("allowed", [LOCAL, policy("0.0.0.0/0", app_is_local=False)])
def test_number_forms_are_refused_whatever_is_allowed(host, allowed):
    with pytest.raises(AddressError, match="decimal numbers"):
        allowed.target(f"http://{host}:8000", nobody)


@pytest.mark.parametrize(
    "host",
    [
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:10.0.0.1]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[2001:0:0:0:0:0:80ff:fffe]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
    ],
)
@pytest.mark.parametrize("allowed", [LOCAL, policy("::/0, 0.0.0.0/0", app_is_local=False)])
def test_ipv4_inside_ipv6_is_refused(host, allowed):
    with pytest.raises(AddressError, match="inside an IPv6 address"):
        allowed.target(f"http://{host}:8000", nobody)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fe80::1]",
        "[fec0::1]",
        "0.0.0.0",
        "0.1.2.3",
        "[::]",
        "224.0.0.1",
        "[ff02::1]",
        "240.0.0.1",
        "255.255.255.255",
    ],
)
@pytest.mark.parametrize(
    "allowed", [LOCAL, policy("0.0.0.0/0 ::/0 169.254.0.0/16 fe80::/10", app_is_local=False)]
)
def test_link_local_and_reserved_are_never_called(host, allowed):
    with pytest.raises(AddressError, match="never called"):
        allowed.target(f"http://{host}:80", nobody)


PRIVATE = ["10.0.0.5", "172.16.3.4", "192.168.1.1", "100.64.0.1", "[fd00::5]"]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_need_to_be_listed(host):
    with pytest.raises(AddressError, match="may not be called"):
        LOCAL.target(f"http://{host}:8000", nobody)
    with pytest.raises(AddressError, match="may not be called"):
        policy("api.example.com", app_is_local=False).target(f"http://{host}:8000", nobody)
    listed = policy(f"{host}:8000", app_is_local=False)
    assert listed.target(f"http://{host}:8000", nobody).address == host.strip("[]")
    with pytest.raises(AddressError, match="may not be called"):
        listed.target(f"http://{host}:8001", nobody)


def test_loopback_needs_to_be_listed_once_there_is_a_list():
    only = policy("api.example.com", app_is_local=True)
    with pytest.raises(AddressError):
        only.target("http://127.0.0.1:8000", nobody)
    both = policy("api.example.com loopback", app_is_local=True)
    assert both.target("http://127.0.0.1:8000", nobody).address == "127.0.0.1"


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "   ",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "gopher://127.0.0.1",
        "http://",
        "http://user:secret@127.0.0.1:8000",
        "http://127.0.0.1:8000@evil.example",
        "http://evil.example\\@127.0.0.1",
        "http://127.0.0.1:8000/v1?api_key=secret",
        "http://127.0.0.1:8000/v1#secret",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:port",
        "http://127.0.0.1/../admin",
        "http://127.0.0.1//evil",
        "http://127.0.0.1/%2e%2e/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://１２７.0.0.1",
        "http://127。0。0。1",
        "http://loc alhost",
        "http://127.0.0.1\r\nHost: x",
        "http://exa_mple..com",
        "http://-x.com",
        "http://" + "a" * 3_000,
    ],
)
def test_what_cannot_be_an_address_gets_a_sentence_without_a_secret(typed):
    with pytest.raises(AddressError) as caught:
        LOCAL.target(typed, answers("127.0.0.1"))
    assert "secret" not in str(caught.value).replace("hold secrets", "")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("typed", "url", "root"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1", ""),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", ""),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1", ""),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1", ""),
        ("http://127.0.0.1/team/v1/models", "http://127.0.0.1/team/v1", "/team"),
        ("https://127.0.0.1/openai", "https://127.0.0.1/openai", "/openai"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", ""),
    ],
)
def test_the_root_of_the_api_is_found(typed, url, root):
    found = LOCAL.target(typed, nobody)
    assert found.url == url
    assert found.root == root


# Names


def test_a_listed_name_may_lead_to_public_addresses_only():
    listed = policy("api.example.com", app_is_local=False)
    found = listed.target("https://api.example.com/v1", answers("93.184.216.34"))
    assert (found.host, found.address, found.port) == ("api.example.com", "93.184.216.34", 443)
    assert found.is_public
    for address in ("127.0.0.1", "10.0.0.5", "::1", "fd00::1", "100.64.0.1"):
        with pytest.raises(AddressError, match="not a public address"):
            listed.target("https://api.example.com", answers("93.184.216.34", address))
    for address in ("169.254.169.254", "0.0.0.0", "fe80::1"):
        with pytest.raises(AddressError, match="never called"):
            listed.target("https://api.example.com", answers(address))
    with pytest.raises(AddressError, match="inside an IPv6 address"):
        listed.target("https://api.example.com", answers("::ffff:127.0.0.1"))


def test_a_name_inside_a_listed_network():
    listed = policy("gpu.example.com, 10.0.0.0/8", app_is_local=False)
    assert listed.target("http://gpu.example.com:8000", answers("10.1.2.3")).address == "10.1.2.3"
    with pytest.raises(AddressError):
        listed.target("http://gpu.example.com:8000", answers("10.1.2.3", "192.168.0.1"))


def test_names_that_are_not_listed_are_not_even_resolved():
    listed = policy("api.example.com *.pool.example.com", app_is_local=False)
    for name in (
        "example.com",
        "evil-api.example.com",
        "api.example.com.evil.net",
        "pool.example.com",
    ):
        with pytest.raises(AddressError, match="may not be called"):
            listed.target(f"https://{name}", nobody)
    assert listed.target("https://API.example.com.", answers("1.1.1.1")).host == "api.example.com"
    assert listed.target("https://a.b.pool.example.com", answers("1.1.1.1")).address == "1.1.1.1"


def test_a_listed_port_is_the_only_one():
    listed = policy("https://api.example.com", app_is_local=False)
    listed.target("https://api.example.com", answers("1.1.1.1"))
    with pytest.raises(AddressError):
        listed.target("http://api.example.com", answers("1.1.1.1"))
    with pytest.raises(AddressError):
        listed.target("https://api.example.com:8443", answers("1.1.1.1"))


def test_a_name_on_a_local_app_must_lead_to_this_machine():
    assert LOCAL.target("http://my-host:8000", answers("127.0.1.1")).address == "127.0.1.1"
    for address in ("10.0.0.1", "1.1.1.1"):
        with pytest.raises(AddressError):
            LOCAL.target("http://my-host:8000", answers("127.0.0.1", address))


def test_a_name_nobody_knows():
    def fails(host, port):
        raise OSError

    for resolve in (fails, answers(), answers("not an address")):
        with pytest.raises(AddressError, match="No address was found"):
            LOCAL.target("http://nowhere.example:8000", resolve)


def test_a_name_is_resolved_once_and_kept():
    asked = []

    def changes(host, port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    found = LOCAL.target("http://rebind.example:8000", changes)
    assert found.address == "127.0.0.1"
    assert asked == ["rebind.example"]


# Anything at all


@given(st.ip_addresses())
def test_no_address_slips_through_a_policy_for_this_machine(address):
    host = f"[{address}]" if address.version == 6 else str(address)
    try:
        found = LOCAL.target(f"http://{host}:8000", nobody)
    except AddressError:
        return
    assert ipaddress.ip_address(found.address).is_loopback


@given(st.ip_addresses(v=4))
def test_every_embedding_of_an_address_is_seen(inner):
    mapped = ipaddress.ip_address(f"::ffff:{inner}")
    sixtofour = ipaddress.IPv6Address((0x2002 << 112) | (int(inner) << 80))
    translated = ipaddress.IPv6Address((0x64FF9B << 96) | int(inner))
    for outer in (mapped, sixtofour, translated):
        assert embedded(outer) == inner


@given(st.text(max_size=80))
def test_any_text_is_refused_or_stays_on_this_machine(typed):
    try:
        found = LOCAL.target(typed, answers("127.0.0.1"))
    except AddressError as refused:
        assert str(refused).endswith((".", "off)."))
        return
    assert ipaddress.ip_address(found.address).is_loopback


@given(st.integers(0, 2**32 - 1))
def test_no_number_is_a_host(number):
    for form in (str(number), hex(number), f"0{number:o}"):
        with pytest.raises(AddressError):
            LOCAL.target(f"http://{form}:8000", answers("127.0.0.1"))


def test_never_callable_leaves_ordinary_addresses_alone():
    for address in ("127.0.0.1", "::1", "10.0.0.1", "8.8.8.8", "2606:4700::1111", "fd00::1"):
        assert not never_callable(ipaddress.ip_address(address))
    assert is_loopback_host("[::1]")
    assert not is_loopback_host("localhost.evil.example")
