/** Asks for a token when the server needs one. */
import { useState } from "preact/hooks";

import { needsToken, saveToken } from "../api/request";
import { Dialog } from "./dialog";

export function TokenDialog() {
  const [token, setToken] = useState("");
  if (!needsToken.value) return null;
  return (
    <Dialog title="Sign in" onClose={() => (needsToken.value = false)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          saveToken(token.trim());
          location.reload();
        }}
      >
        <p>
          This server needs a token with every request. The token is kept until this tab is closed.
        </p>
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <div class="actions">
          <button class="primary" disabled={!token.trim()}>
            Sign in
          </button>
        </div>
      </form>
    </Dialog>
  );
}
