/** The tokens of the user who is signed in: in memory alone, renewed before they expire. */
import { Unreachable } from "../api/request";
import type { SignInView } from "../api/schema";
import { t } from "../text/language";
import { type Grant, isIssuer, redirectUri, SignInRefused } from "./authorization";
import { type Credentials, needsSignIn } from "./credentials";

interface Held {
  access: string;
  refresh: string | null;
  expiresAt: number;
  renewAt: number;
}

interface TokenAnswer {
  access_token?: string;
  refresh_token?: string;
  id_token?: string;
  expires_in?: number;
  error?: string;
  error_description?: string;
}

const TIMEOUT_MS = 20_000;
/** Of issuers that do not say how long a token lives. */
const USUAL_SECONDS = 300;
const EARLY_MS = 30_000;
const SKEW_SECONDS = 300;

export class IssuedTokens implements Credentials {
  private held: Held | null = null;
  private renewing: Promise<void> | null = null;

  constructor(private readonly how: SignInView) {}

  /** Throws `SignInRefused` or `Unreachable`. */
  async exchange(grant: Grant): Promise<void> {
    const answer = await this.ask({
      grant_type: "authorization_code",
      code: grant.code,
      code_verifier: grant.verifier,
      redirect_uri: redirectUri(),
    });
    if (this.how.scopes.includes("openid")) this.checkIdentity(answer.id_token, grant.nonce);
    this.keep(answer);
  }

  async current(): Promise<string | null> {
    if (this.held && Date.now() >= this.held.renewAt) await this.renew();
    return this.held?.access ?? null;
  }

  async renewed(refused: string): Promise<string | null> {
    if (this.held?.access === refused) await this.renew();
    const access = this.held?.access ?? null;
    return access === refused ? null : access;
  }

  /** Forget them, and have the issuer forget them too where it offers that (RFC 7009). */
  async giveBack(): Promise<void> {
    const token = this.held?.refresh ?? this.held?.access;
    this.held = null;
    if (!token || !this.how.revocation_endpoint) return;
    const body = new URLSearchParams({ client_id: this.how.page_client_id ?? "", token });
    const request = { method: "POST", body, keepalive: true, mode: "no-cors" as const };
    await fetch(this.how.revocation_endpoint, {
      ...request,
      credentials: "omit",
      signal: AbortSignal.timeout(2_000),
    }).catch(() => undefined);
  }

  /** All who need a token at the same time wait for one renewal: it uses up the refresh token. */
  private renew(): Promise<void> {
    this.renewing ??= this.renewOnce().finally(() => (this.renewing = null));
    return this.renewing;
  }

  private async renewOnce(): Promise<void> {
    const { held } = this;
    if (!held?.refresh) {
      if (held && Date.now() >= held.expiresAt) this.end(t("Your sign-in has ended."));
      return;
    }
    try {
      this.keep(await this.ask({ grant_type: "refresh_token", refresh_token: held.refresh }), held);
    } catch (error) {
      if (error instanceof SignInRefused) this.end(error.message);
      else if (Date.now() >= held.expiresAt) throw error;
    }
  }

  private end(why: string): void {
    this.held = null;
    needsSignIn.value = why;
  }

  private keep(answer: TokenAnswer, before?: Held): void {
    const seconds = answer.expires_in ?? USUAL_SECONDS;
    const early = Math.min(EARLY_MS, (seconds * 1000) / 4);
    this.held = {
      access: answer.access_token ?? "",
      refresh: answer.refresh_token ?? before?.refresh ?? null,
      expiresAt: Date.now() + seconds * 1000,
      renewAt: Date.now() + seconds * 1000 - early,
    };
  }

  private async ask(parameters: Record<string, string>): Promise<TokenAnswer> {
    let response: Response;
    let answer: TokenAnswer;
    try {
      response = await fetch(this.how.token_endpoint ?? "", {
        method: "POST",
        body: new URLSearchParams({
          ...this.how.parameters,
          client_id: this.how.page_client_id ?? "",
          ...parameters,
        }),
        credentials: "omit",
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      answer = (await response.json()) as TokenAnswer;
    } catch {
      throw new Unreachable(t("The sign-in service cannot be reached."));
    }
    if (response.ok && answer.access_token) return answer;
    if (response.status >= 500 || response.status === 429) {
      throw new Unreachable(t("The sign-in service cannot serve now."));
    }
    if (answer.error === "invalid_grant") {
      throw new SignInRefused(t("Your sign-in has ended."));
    }
    const why = [answer.error, answer.error_description].filter(Boolean).join(": ");
    throw new SignInRefused(
      t("The sign-in service refused: {reason}", { reason: why || String(response.status) }),
    );
  }

  /** The issuer itself sent it over TLS, which stands for its signature (OpenID Connect Core,
   * 3.1.3.7); what it says must be meant for this page and this attempt. */
  private checkIdentity(token: string | undefined, nonce: string): void {
    const claims = claimsOf(token);
    const { page_client_id: client, issuer } = this.how;
    const audience = claims["aud"];
    const isOurs = Array.isArray(audience) ? audience.includes(client) : audience === client;
    const isCurrent = Number(claims["exp"]) > Date.now() / 1000 - SKEW_SECONDS;
    const isFrom = issuer !== null && isIssuer(claims["iss"], issuer);
    if (claims["nonce"] !== nonce || !isOurs || !isCurrent || !isFrom) {
      throw new SignInRefused(t("The answer of the sign-in service is not for this sign-in."));
    }
  }
}

function claimsOf(token: string | undefined): Record<string, unknown> {
  try {
    const part = (token ?? "").split(".")[1] ?? "";
    const bytes = atob(part.replaceAll("-", "+").replaceAll("_", "/"));
    const text = new TextDecoder().decode(Uint8Array.from(bytes, (char) => char.charCodeAt(0)));
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}
