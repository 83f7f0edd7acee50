"""TLS contexts (RFC 9325): version 1.2 or newer, forward secrecy, verified certificates."""

import ssl

from zerochat.errors import LocalError

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; all suites of 1.3 are acceptable."""


class BadCertificate(LocalError):
    """The certificate file {path} cannot be used: {why}. It must be in PEM format, with a matching private key."""

    exit_code = 2


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """The context of the listener, from a PEM certificate chain and its private key. Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    try:
        # An empty password: otherwise OpenSSL prompts for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise BadCertificate(path=certificate, why=_reason(error)) from error
    return context


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """The context of outgoing connections: trusts the system's CAs and those in `ca_file` (PEM). Raises
    BadCertificate."""
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
        return (error.reason or "it is not in PEM format").replace("_", " ").lower()
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
