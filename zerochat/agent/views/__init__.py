"""Views: core state and journal rows as the types of the API."""
