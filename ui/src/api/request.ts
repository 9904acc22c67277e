/** Requests to the server: JSON in, JSON out, and typed errors. */
import { signal } from "@preact/signals";

import { credentials, needsSignIn } from "../account/credentials";
import { t } from "../text/language";

const TIMEOUT_MS = 30_000;

/** Whether the server has answered the last request. */
export const isReachable = signal(true);

export class ServerProblem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly correlationId: string | null,
    readonly members: Record<string, unknown> = {},
  ) {
    super(detail);
  }
}

/** The server was not reached, or the connection ended before its answer. */
export class Unreachable extends Error {
  constructor(message = t("The server cannot be reached.")) {
    super(message);
  }
}

export interface Call {
  method?: string;
  body?: unknown;
  key?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** A response with a good status; throws `ServerProblem` or `Unreachable` otherwise.
 *
 * A token that the server refuses is renewed once: a refused request has done nothing.
 */
export async function send(path: string, call: Call = {}): Promise<Response> {
  const token = await credentials().current();
  let response = await sendOnce(path, call, token);
  if (response.status === 401 && token !== null) {
    const other = await credentials().renewed(token);
    if (other !== null) response = await sendOnce(path, call, other);
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

async function sendOnce(path: string, call: Call, token: string | null): Promise<Response> {
  const headers: Record<string, string> = { ...call.headers };
  if (call.body !== undefined) headers["Content-Type"] = "application/json";
  if (call.key) headers["Idempotency-Key"] = call.key;
  if (token) headers["Authorization"] = `Bearer ${token}`;
  try {
    const response = await fetch(path, {
      method: call.method ?? "GET",
      headers,
      body: call.body === undefined ? null : JSON.stringify(call.body),
      signal: call.signal ?? null,
      cache: "no-store",
      credentials: "same-origin",
    });
    isReachable.value = true;
    return response;
  } catch (error) {
    if (call.signal?.aborted) throw error;
    isReachable.value = false;
    throw new Unreachable();
  }
}

export async function ask<Answer>(path: string, call: Call = {}): Promise<Answer> {
  const late = AbortSignal.timeout(TIMEOUT_MS);
  const signal = call.signal ? AbortSignal.any([call.signal, late]) : late;
  try {
    const headers = { Accept: "application/json" };
    const response = await send(path, { ...call, signal, headers });
    return (await response.json()) as Answer;
  } catch (error) {
    if (error instanceof ServerProblem || call.signal?.aborted) throw error;
    isReachable.value = false;
    throw error instanceof Unreachable ? error : new Unreachable();
  }
}

/** An error as a text for the user, with the id that the server's log has for it. */
export function errorText(error: unknown): string {
  if (error instanceof ServerProblem) {
    const id = error.correlationId ? ` (${t("id")} ${error.correlationId})` : "";
    return `${error.message}${id}`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** For keys that make a request safe to repeat, and for the ids of new chats. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function problemOf(response: Response): Promise<ServerProblem> {
  const body = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  const { detail, code, correlation_id: id, ...members } = body;
  const first = firstError(members["errors"]);
  if (response.status === 401) needsSignIn.value ??= typeof detail === "string" ? detail : "";
  return new ServerProblem(
    response.status,
    typeof code === "string" ? code : `http_${response.status}`,
    [
      typeof detail === "string"
        ? detail
        : t("The server answered {status}.", { status: String(response.status) }),
      first,
    ]
      .filter(Boolean)
      .join(" "),
    typeof id === "string" ? id : response.headers.get("X-Correlation-Id"),
    members,
  );
}

function firstError(errors: unknown): string {
  if (!Array.isArray(errors) || errors.length === 0) return "";
  const { loc, msg } = errors[0] as { loc?: unknown[]; msg?: string };
  return `${(loc ?? []).join(".")}: ${msg ?? ""}`;
}
