/** Asks the user to sign in: instead of the page, or over it when a sign-in has ended. */
import { useState } from "preact/hooks";

import { how, problem, signInAtIssuer, signInWith, stage, usesIssuer } from "../account/account";
import { needsSignIn } from "../account/credentials";
import { phrase, t } from "../text/language";
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
    <Dialog title={t("Sign in")} onClose={() => (needsSignIn.value = null)}>
      {reason && (
        <p>
          {reason} {t("What you have written stays here.")}
        </p>
      )}
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
      {t("Try again")}
    </button>
  );
}

function AtIssuer() {
  return (
    <>
      <p>
        {phrase("You sign in at {place} and come back here.", {
          place: <strong>{hostOf(how.value?.authorization_endpoint)}</strong>,
        })}
      </p>
      <button type="button" class="primary" onClick={() => void signInAtIssuer()}>
        {t("Sign in")}
      </button>
      <button type="button" class="quiet" onClick={() => void signInAtIssuer("login")}>
        {t("Use another account")}
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
          ? phrase("This server needs an access key with every request. {command} makes one.", {
              command: <code>teal keys add</code>,
            })
          : t("This server needs a token with every request.")}{" "}
        {t("It is kept until this tab is closed.")}
      </p>
      <label>
        {isKey ? t("Access key") : t("Token")}
        <input
          type="password"
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <div class="actions">
        <button class="primary" disabled={isBusy || !text.trim()}>
          {t("Sign in")}
        </button>
      </div>
    </form>
  );
}

const hostOf = (address: string | null | undefined): string =>
  address ? new URL(address).host : t("the issuer");
