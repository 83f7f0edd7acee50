"""TLS for both directions: version 1.2 or newer, forward secrecy always, certificates checked always (RFC 9325)."""

import ssl

from zerochat.errors import LocalError

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; every suite of 1.3 is as good."""


class BadCertificate(LocalError):
    """The certificate file {path} cannot be used: {why}. It must hold PEM, and a private key must belong to it."""

    exit_code = 2


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """For our listener: paths of a PEM certificate chain and of its private key. Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    try:
        # An empty password, because OpenSSL would otherwise ask for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise BadCertificate(path=certificate, why=_reason(error)) from error
    return context


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """For what we dial: the system's authorities, and those in the PEM file `ca_file`. Raises BadCertificate."""
    context = ssl.create_default_context()
    _harden(context)
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ValueError) as error:
            raise BadCertificate(path=ca_file, why=_reason(error)) from error
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").replace("_", " ").lower()
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
