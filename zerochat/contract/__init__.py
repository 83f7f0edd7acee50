"""The judge of disputes as an Ethereum contract (README.md). Needs the extra `evm`; the chat never imports it."""
