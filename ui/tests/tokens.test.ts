import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { isIssuer, SignInRefused } from "../src/account/authorization";
import { needsSignIn } from "../src/account/credentials";
import { IssuedTokens } from "../src/account/tokens";
import type { SignInView } from "../src/api/schema";

const HOW: SignInView = {
  method: "oidc",
  issuer: "https://issuer.example",
  page_client_id: "page",
  cli_client_id: null,
  scopes: ["openid", "teal.use"],
  parameters: { resource: "https://teal.example", client_id: "other" },
  loopback_host: "127.0.0.1",
  authorization_endpoint: "https://issuer.example/auth",
  token_endpoint: "https://issuer.example/token",
  device_authorization_endpoint: null,
  revocation_endpoint: null,
  end_session_endpoint: null,
};
const GRANT = { code: "c", nonce: "n", verifier: "v" };

let asked: URLSearchParams[] = [];
let answers: (Record<string, unknown> | Error)[] = [];

beforeEach(() => {
  asked = [];
  answers = [];
  needsSignIn.value = null;
  vi.stubGlobal("location", { origin: "https://teal.example" });
  vi.stubGlobal("fetch", (_: string, { body }: { body: URLSearchParams }) => {
    asked.push(body);
    const next = answers.shift() ?? new Error("away");
    if (next instanceof Error) return Promise.reject(next);
    return Promise.resolve(Response.json(next, { status: next["error"] ? 400 : 200 }));
  });
});

afterEach(() => vi.unstubAllGlobals());

function answer(access: string, lifetime: number, claims: Record<string, unknown> = {}) {
  const identity = {
    iss: HOW.issuer,
    aud: "page",
    nonce: "n",
    exp: Date.now() / 1000 + 60,
    ...claims,
  };
  const part = Buffer.from(JSON.stringify(identity)).toString("base64url");
  return {
    access_token: access,
    refresh_token: `refresh ${access}`,
    expires_in: lifetime,
    id_token: `h.${part}.s`,
  };
}

async function signedIn(lifetime: number): Promise<IssuedTokens> {
  answers.push(answer("first", lifetime));
  const tokens = new IssuedTokens(HOW);
  await tokens.exchange(GRANT);
  return tokens;
}

test("a code is exchanged with its verifier, as this page", async () => {
  const tokens = await signedIn(3600);
  expect(await tokens.current()).toBe("first");
  const sent = Object.fromEntries(asked[0] ?? []);
  expect(sent).toMatchObject({ code_verifier: "v", redirect_uri: "https://teal.example/" });
  expect(sent).toMatchObject({ client_id: "page", resource: "https://teal.example" });
});

test.each([
  ["another nonce", { nonce: "other" }],
  ["another client", { aud: "other" }],
  ["another issuer", { iss: "https://issuer.example.evil" }],
  ["an old one", { exp: 1 }],
])("an identity of %s is refused", async (_, claims) => {
  answers.push(answer("first", 3600, claims));
  const tokens = new IssuedTokens(HOW);
  await expect(tokens.exchange(GRANT)).rejects.toThrow(SignInRefused);
  expect(await tokens.current()).toBe(null);
});

test("all who need a token at its end wait for one renewal", async () => {
  const tokens = await signedIn(0);
  answers.push(answer("second", 3600));
  const all = await Promise.all([tokens.current(), tokens.current(), tokens.renewed("first")]);
  expect(all).toEqual(["second", "second", "second"]);
  expect(asked.map((form) => form.get("refresh_token"))).toEqual([null, "refresh first"]);
});

test("a token that the server refuses is renewed before its end", async () => {
  const tokens = await signedIn(3600);
  answers.push(answer("second", 3600));
  expect(await tokens.renewed("first")).toBe("second");
  expect(await tokens.renewed("first")).toBe("second");
  expect(asked.length).toBe(2);
});

test("a sign-in that the issuer has ended asks the user", async () => {
  const tokens = await signedIn(0);
  answers.push({ error: "invalid_grant" });
  expect(await tokens.current()).toBe(null);
  expect(needsSignIn.value).toBe("Your sign-in has ended.");
});

test("an issuer that is away ends no sign-in", async () => {
  const tokens = await signedIn(0);
  await expect(tokens.current()).rejects.toThrow("cannot be reached");
  answers.push(answer("second", 3600));
  expect(await tokens.current()).toBe("second");
});

test("an issuer of several directories is a pattern", () => {
  const pattern = "https://login.example/{tenantid}/v2.0";
  const tenant = "aaaabbbb-0000-cccc-1111-dddd2222eeee";
  expect(isIssuer(`https://login.example/${tenant}/v2.0`, pattern)).toBe(true);
  expect(isIssuer(`https://login.evil/${tenant}/v2.0`, pattern)).toBe(false);
  expect(isIssuer(`https://login.example/${tenant}/evil/v2.0`, pattern)).toBe(false);
});
