"""The console: every session of the user in a browser; a floor above the app, with no way of its own to judge or undo.

`server` is the ASGI application, `access` who may come in, `feed` what happens in all sessions, `apps` the door to
workspaces, `api` one module a page, `static` the pages themselves. docs/console.md says what is promised.
"""
