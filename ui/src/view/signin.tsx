/** Asks the user to sign in: instead of the page, or over it when a sign-in has ended. */
import { useState } from "preact/hooks";

import { how, problem, signInAtIssuer, signInWith, stage, usesIssuer } from "../account/account";
import { needsSignIn } from "../account/credentials";
import { Dialog } from "./dialog";
import { Mark } from "./mark";

export function SignInPage() {
  const isBusy = stage.value !== "out";
  return (
    <main class="sign-in" aria-busy={isBusy}>
      {!isBusy && (
        <section aria-labelledby="sign-in">
          <h1 id="sign-in" class="brand">
            <Mark /> Teal Agents
          </h1>
          <SignInForm />
        </section>
      )}
    </main>
  );
}

export function SignInDialog() {
  const reason = needsSignIn.value;
  if (reason === null) return null;
  return (
    <Dialog title="Sign in" onClose={() => (needsSignIn.value = null)}>
      {reason && <p>{reason} What you have written stays here.</p>}
      <SignInForm />
    </Dialog>
  );
}

function SignInForm() {
  return (
    <>
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {how.value === null ? <TryAgain /> : usesIssuer() ? <AtIssuer /> : <Pasted />}
    </>
  );
}

function TryAgain() {
  return (
    <button type="button" class="primary" onClick={() => location.reload()}>
      Try again
    </button>
  );
}

function AtIssuer() {
  return (
    <>
      <p>
        You sign in at <strong>{hostOf(how.value?.authorization_endpoint)}</strong> and come back
        here.
      </p>
      <button type="button" class="primary" onClick={() => void signInAtIssuer()}>
        Sign in
      </button>
      <button type="button" class="quiet" onClick={() => void signInAtIssuer("login")}>
        Use another account
      </button>
    </>
  );
}

function Pasted() {
  const [text, setText] = useState("");
  const [isBusy, setBusy] = useState(false);
  const isKey = how.value?.method === "key";
  const send = async (): Promise<void> => {
    setBusy(true);
    await signInWith(text.trim());
    setBusy(false);
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <p>
        {isKey
          ? "This server needs an access key with every request. `teal keys add` makes one. "
          : "This server needs a token with every request. "}
        It is kept until this tab is closed.
      </p>
      <label>
        {isKey ? "Access key" : "Token"}
        <input
          type="password"
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <div class="actions">
        <button class="primary" disabled={isBusy || !text.trim()}>
          Sign in
        </button>
      </div>
    </form>
  );
}

const hostOf = (address: string | null | undefined): string =>
  address ? new URL(address).host : "the issuer";
