// An OpenID Connect issuer for the tests: `oidc-provider`, which is certified and not ours.
//
// It listens on loopback and prints its address. Everyone signs in with any name and password. What
// tests change is under /test: `set` its clock and the lifetime of access tokens, `rotate` its key.
/* global URL, console */
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";

// Newer than the oldest Node.js that builds the page.
URL.parse ??= (text) => (URL.canParse(text) ? new URL(text) : null);
const { default: Provider, interactionPolicy } = await import("oidc-provider");
const { createMemoryAdapter } = await import("oidc-provider/lib/adapters/memory_adapter.js");

const AUDIENCE = "teal";
const SCOPE = "teal.use";
// A provider with another key still knows its clients, sessions and tokens.
const adapter = createMemoryAdapter();
const state = { ttl: 3600, behind: 0, keys: [newKey()] };

const realNow = Date.now;
Date.now = () => realNow() - state.behind * 1000;

function newKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256" };
}

// On loopback the page can only be registered as a native client, and those are always asked.
const policy = interactionPolicy.base();
policy.get("consent").checks.remove("native_client_prompt");

function provider(issuer) {
  return new Provider(issuer, {
    adapter,
    jwks: { keys: state.keys },
    cookies: { keys: ["a secret of the tests"] },
    clients: [
      {
        client_id: "cli",
        application_type: "native",
        token_endpoint_auth_method: "none",
        redirect_uris: ["http://127.0.0.1/signed-in"],
        grant_types: [
          "authorization_code",
          "refresh_token",
          "urn:ietf:params:oauth:grant-type:device_code",
        ],
      },
    ],
    // The page's client is registered once its address is known.
    clientDefaults: { token_endpoint_auth_method: "none" },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: nameOf(id) }) }),
    claims: { openid: ["sub"], profile: ["name"] },
    extraTokenClaims: (_, token) => ({ name: nameOf(token.accountId) }),
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    ttl: { AccessToken: () => state.ttl },
    interactions: { policy },
    features: {
      deviceFlow: { enabled: true },
      registration: { enabled: true, idFactory: () => "page" },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => "https://teal.example",
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: SCOPE,
          audience: AUDIENCE,
          accessTokenTTL: state.ttl,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
}

const nameOf = (id) => id.charAt(0).toUpperCase() + id.slice(1);

let serve;
const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, address());
  if (!pathname.startsWith("/test/")) {
    serve(request, response);
    return;
  }
  if (pathname === "/test/rotate") {
    state.keys = [newKey()];
    serve = provider(address()).callback();
  }
  for (const [name, value] of searchParams) state[name] = Number(value);
  response.end("{}");
});

const address = () => `http://127.0.0.1:${server.address().port}`;

server.listen(0, "127.0.0.1", () => {
  serve = provider(address()).callback();
  console.log(address());
});
