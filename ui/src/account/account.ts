/** Who uses the page: signing in, signing out, and nothing of one user for the next. */
import { signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { MeView, SignInView } from "../api/schema";
import { forGood, forThisTab } from "../page/storage";
import {
  leaveForIssuer,
  redirectUri,
  SignInRefused,
  takeGrant,
  wasLeftBehind,
} from "./authorization";
import { needsSignIn, pasted, useCredentials } from "./credentials";
import { IssuedTokens } from "./tokens";

/** `out`: the user must sign in; `in`: the page may show what is theirs. */
export const stage = signal<"starting" | "out" | "in" | "leaving">("starting");
export const how = signal<SignInView | null>(null);
export const me = signal<MeView | null>(null);
/** Why the last attempt to sign in failed. */
export const problem = signal("");

const OURS = "teal.";
/** The id of the user whose drafts the browser has. */
const USER = "teal.user";
/** Set while a user is signed in at the issuer: other tabs and reloads then need not ask. */
const STAYS = "teal.stays-signed-in";
const channel = "BroadcastChannel" in window ? new BroadcastChannel("teal.account") : null;
let tokens: IssuedTokens | null = null;

export const usesIssuer = (): boolean =>
  how.value?.method === "oidc" &&
  how.value.page_client_id !== null &&
  how.value.authorization_endpoint !== null &&
  how.value.token_endpoint !== null;

/** Find out who the user is, without asking if that is possible; whether the page may start. */
export async function begin(): Promise<boolean> {
  channel?.addEventListener("message", () => void leave());
  // A page that the browser has kept would show what was on it.
  window.addEventListener("pageshow", (event) => event.persisted && location.reload());
  try {
    const known = (how.value = await server.signIn());
    if (usesIssuer()) {
      tokens = new IssuedTokens(known);
      useCredentials(tokens);
      const grant = takeGrant(known);
      if (grant) await tokens.exchange(grant);
      else if (wasLeftBehind() || forGood.get(STAYS) === null) return stayOut("");
      else return await leaveForIssuer(known, "none").then(() => false);
    } else if (known.method !== "none" && !pasted.isKnown()) {
      return stayOut("");
    }
    await recognise();
    return true;
  } catch (error) {
    const isRefused = error instanceof SignInRefused;
    if (isRefused) forGood.remove(STAYS);
    return stayOut(isRefused && error.isExpected ? "" : errorText(error));
  }
}

/** Sign in with a pasted token or access key; a wrong one is refused in words. */
export async function signInWith(token: string): Promise<void> {
  const before = await pasted.current();
  pasted.save(token);
  try {
    if (how.peek()?.method !== "none") await server.me();
    // What is in memory may be another user's.
    location.reload();
  } catch (error) {
    if (before === null) pasted.forget();
    else pasted.save(before);
    problem.value = errorText(error);
  }
}

export async function signInAtIssuer(prompt?: "login"): Promise<void> {
  const known = how.peek();
  if (known === null) return location.reload();
  try {
    await leaveForIssuer(known, prompt);
  } catch (error) {
    problem.value = errorText(error);
  }
}

export async function signOut(): Promise<void> {
  channel?.postMessage("signed out");
  const end = usesIssuer() ? (how.peek()?.end_session_endpoint ?? null) : null;
  const goodbye = end === null ? null : new URL(end);
  // Without the ID token as a hint: a token must not stand in an address.
  goodbye?.searchParams.set("client_id", how.peek()?.page_client_id ?? "");
  goodbye?.searchParams.set("post_logout_redirect_uri", redirectUri());
  await leave(goodbye);
}

/** Take everything of the user off the page and out of the browser, then load the page again. */
async function leave(to: URL | null = null): Promise<void> {
  stage.value = "leaving";
  me.value = null;
  document.title = "Teal Agents";
  forgetStored();
  await tokens?.giveBack();
  if (to) return location.replace(to);
  history.replaceState(null, "", "/");
  location.reload();
}

async function recognise(): Promise<void> {
  if (how.peek()?.method === "none") return;
  const user = (me.value = await server.me());
  const last = forGood.get(USER);
  if (last !== null && last !== user.id) forgetDrafts();
  forGood.set(USER, user.id);
  if (tokens) forGood.set(STAYS, "yes");
  needsSignIn.value = null;
}

function stayOut(why: string): false {
  problem.value = why;
  stage.value = "out";
  return false;
}

function forgetDrafts(): void {
  const token = forThisTab.get("teal.token");
  forgetStored();
  if (token !== null) pasted.save(token);
}

function forgetStored(): void {
  for (const storage of [forGood, forThisTab]) {
    for (const name of storage.names()) if (name.startsWith(OURS)) storage.remove(name);
  }
}
