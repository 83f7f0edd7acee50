"""Kinds of addresses, also of IPv4 addresses within IPv6."""

import pytest

from zerochat.didcomm.address_kinds import AddressKind, authority, kind_of_host, kind_of_uri


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        *((host, AddressKind.LOOPBACK) for host in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")),
        *(
            (host, AddressKind.LOOPBACK)
            for host in ("localhost", "a.LocalHost.", "127.1", "2130706433", "0x7f.1", "1.")
        ),
        *((host, AddressKind.LOOPBACK) for host in ("2002:7f00:1::", "64:ff9b::7f00:1", "::127.0.0.1")),
        *((host, AddressKind.LINK_LOCAL) for host in ("169.254.1.1", "fe80::1", "fe80::1%eth0", "64:ff9b::a9fe:101")),
        *((host, AddressKind.PRIVATE) for host in ("10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "fd00::1")),
        *((host, AddressKind.PRIVATE) for host in ("::ffff:10.0.0.1", "2002:c0a8:101::1", "64:ff9b::a00:1")),
        *((host, AddressKind.PRIVATE) for host in ("fec0::1", "64:ff9b:1::7f00:1", "::ffff:0:7f00:1", "5f00::1")),
        *((host, AddressKind.PUBLIC) for host in ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")),
        *((host, None) for host in ("", "mediator.example", "localhost.example", "0xyz")),
    ],
)
def test_kinds_of_hosts(host, kind):
    assert kind_of_host(host) == kind
    assert kind_of_uri(f"http://[{host}]:80/" if ":" in host and "%" not in host else f"http://{host}:80/") == kind or (
        "%" in host
    )


def test_nearer_is_greater():
    assert sorted(AddressKind) == [
        AddressKind.PUBLIC,
        AddressKind.PRIVATE,
        AddressKind.LINK_LOCAL,
        AddressKind.LOOPBACK,
    ]


def test_all_paths_of_a_host_have_one_authority():
    uris = ("http://M.example:8080/a", "ws://m.example:8080/b/c", "https://m.example:8080")
    assert {authority(uri) for uri in uris} == {"m.example:8080"}
