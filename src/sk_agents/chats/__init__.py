"""The chats API: interactions as server-sent events, approvals, cancel, edit, branches."""
