/** One sign-in at the issuer: the whole window goes there and comes back with a code (RFC 6749),
 * which only the page that began can exchange for tokens (PKCE, RFC 7636). */
import { randomId } from "../api/request";
import type { SignInView } from "../api/schema";
import { forThisTab } from "../page/storage";
import { t } from "../text/language";

/** What must be known again when the window comes back. It holds no token. */
interface Attempt {
  state: string;
  nonce: string;
  verifier: string;
  /** The chat that was open. */
  back: string;
  /** The issuer was not to ask the user anything. */
  isSilent: boolean;
}

export interface Grant {
  code: string;
  nonce: string;
  verifier: string;
}

/** The issuer gave no code. `isExpected`: it would have had to ask the user, and must not. */
export class SignInRefused extends Error {
  constructor(
    message: string,
    readonly isExpected = false,
  ) {
    super(message);
  }
}

const ATTEMPT = "teal.signing-in";
const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const ASKS_USER = /^(login|consent|interaction|account_selection)_required$/;

/** Exactly what the issuer has registered. */
export const redirectUri = (): string => `${location.origin}/`;

/** Leave for the issuer: `none` must not ask the user anything, `login` must ask for an account. */
export async function leaveForIssuer(how: SignInView, prompt?: "none" | "login"): Promise<void> {
  if (!window.isSecureContext) {
    throw new SignInRefused(t("Signing in needs https: open this page by its https address."));
  }
  const attempt: Attempt = {
    state: randomId(),
    nonce: randomId(),
    verifier: randomId() + randomId(),
    back: location.hash,
    isSilent: prompt === "none",
  };
  forThisTab.set(ATTEMPT, JSON.stringify(attempt));
  const asked = new URL(how.authorization_endpoint ?? "");
  const parameters: Record<string, string> = {
    ...how.parameters,
    client_id: how.page_client_id ?? "",
    response_type: "code",
    // What stands behind the # is sent to no server and written into no log.
    response_mode: "fragment",
    redirect_uri: redirectUri(),
    scope: how.scopes.join(" "),
    state: attempt.state,
    nonce: attempt.nonce,
    code_challenge: await challengeOf(attempt.verifier),
    code_challenge_method: "S256",
    ...(prompt ? { prompt } : {}),
  };
  for (const [name, value] of Object.entries(parameters)) asked.searchParams.set(name, value);
  location.assign(asked);
}

/** The code that the window came back with; null if it does not come from the issuer.
 *
 * Throws `SignInRefused`. The address is the chat's again in any case.
 */
export function takeGrant(how: SignInView): Grant | null {
  const answer = new URLSearchParams(location.hash.slice(1));
  const state = answer.get("state");
  if (state === null || !(answer.has("code") || answer.has("error"))) return null;
  const attempt = takeAttempt();
  history.replaceState(null, "", attempt?.back || "#/");
  if (attempt?.state !== state) {
    throw new SignInRefused(t("This sign-in was not begun in this tab. Sign in again."));
  }
  if (answer.has("iss") && how.issuer !== null && !isIssuer(answer.get("iss"), how.issuer)) {
    throw new SignInRefused(t("The answer came from another issuer."));
  }
  const code = answer.get("code");
  if (code === null) {
    const error = answer.get("error") ?? "";
    const why = [error, answer.get("error_description")].filter(Boolean).join(": ");
    throw new SignInRefused(
      t("The issuer refused to sign you in: {reason}", { reason: why }),
      attempt.isSilent && ASKS_USER.test(error),
    );
  }
  return { code, nonce: attempt.nonce, verifier: attempt.verifier };
}

/** Entra ID names the issuer of several directories by a pattern. */
export function isIssuer(name: unknown, issuer: string): boolean {
  if (typeof name !== "string") return false;
  const [before = "", after] = issuer.split("{tenantid}");
  if (after === undefined) return name === issuer;
  const tenant = name.slice(before.length, name.length - after.length);
  return name === before + tenant + after && GUID.test(tenant);
}

/** Whether the window has left for the issuer and came back without an answer: the user pressed
 * "back", or the issuer was away. */
export const wasLeftBehind = (): boolean => takeAttempt() !== null;

function takeAttempt(): Attempt | null {
  const stored = forThisTab.get(ATTEMPT);
  forThisTab.remove(ATTEMPT);
  return stored === null ? null : (JSON.parse(stored) as Attempt);
}

async function challengeOf(verifier: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const text = btoa(String.fromCharCode(...new Uint8Array(digest)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
