// DynamoDB for the tests: `dynalite`, with the transactions that it does not have.
//
// It listens on loopback and prints its address; everything is in memory. A transaction has the
// server to itself: its parts are sent to dynalite one after the other, and taken back if one of
// them is refused. So dynalite decides about each condition, and no request sees half of one.
/* global Buffer, console, process */
import { createServer, request, Agent } from "node:http";
import dynalite from "dynalite";

const PREFIX = "DynamoDB_20120810.";
const agent = new Agent({ keepAlive: true });
const inner = dynalite({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 });

// Requests that run side by side, and transactions, which wait for them and run alone.
let running = 0;
let isAlone = false;
const waiting = [];

function enter(alone) {
  return new Promise((resolve) => {
    waiting.push({ alone, resolve });
    admit();
  });
}

function admit() {
  while (waiting.length && !isAlone && !(waiting[0].alone && running)) {
    const next = waiting.shift();
    running += 1;
    isAlone = next.alone;
    next.resolve();
  }
}

function leave() {
  running -= 1;
  isAlone = false;
  admit();
}

function pass(headers, body) {
  const { port } = inner.address();
  const place = { port, host: "127.0.0.1", method: "POST", agent };
  return new Promise((resolve, reject) => {
    const sent = request({ ...place, headers }, async (answer) => {
      resolve({ status: answer.statusCode, headers: answer.headers, body: await whole(answer) });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

async function ask(operation, parameters) {
  const headers = {
    "x-amz-target": PREFIX + operation,
    "content-type": "application/x-amz-json-1.0",
    "x-amz-date": "20300101T000000Z",
    authorization: "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b, Signature=c",
  };
  const { status, body } = await pass(headers, JSON.stringify(parameters));
  return { status, body: JSON.parse(body) };
}

async function whole(message) {
  const chunks = [];
  for await (const chunk of message) chunks.push(chunk);
  return Buffer.concat(chunks);
}

// What a transaction with this token has answered: sent again, it answers the same.
const answers = new Map();

async function transact({ TransactItems: actions, ClientRequestToken: token }) {
  if (token && answers.has(token)) return answers.get(token);
  const places = actions.map((action) => JSON.stringify(placeOf(Object.values(action)[0])));
  if (actions.length > 100 || new Set(places).size < places.length) {
    return refusal("ValidationException", "too many items, or one of them twice");
  }
  const undo = [];
  const reasons = [];
  let units = 0;
  for (const action of actions) {
    const [[kind, one]] = Object.entries(action);
    const done = await carryOut(kind, one, undo);
    if (
      done.status !== 200 &&
      !String(done.body.__type).endsWith("ConditionalCheckFailedException")
    ) {
      await takeBack(undo);
      return done;
    }
    units += 2 * (done.body.ConsumedCapacity?.CapacityUnits ?? 0);
    reasons.push({ Code: done.status === 200 ? "None" : "ConditionalCheckFailed" });
  }
  if (reasons.some((reason) => reason.Code !== "None")) {
    await takeBack(undo);
    return {
      status: 400,
      body: {
        __type: "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        Message: "Transaction cancelled",
        CancellationReasons: reasons,
      },
    };
  }
  const answer = { status: 200, body: { ConsumedCapacity: [{ CapacityUnits: units }] } };
  if (token) answers.set(token, answer);
  return answer;
}

function placeOf({ Key, Item }) {
  const { pk, sk } = Key ?? Item;
  return { pk, sk };
}

async function carryOut(kind, one, undo) {
  const place = { TableName: one.TableName, Key: placeOf(one) };
  const counted = { ReturnConsumedCapacity: "TOTAL" };
  if (kind === "ConditionCheck") {
    // Written again as it is, if the condition holds.
    const { body } = await ask("GetItem", { ...place, ConsistentRead: true });
    const { Key, ...check } = one;
    const same = body.Item ? { ...check, Item: body.Item } : { ...check, Key };
    return ask(body.Item ? "PutItem" : "DeleteItem", { ...same, ...counted });
  }
  const done = await ask(`${kind}Item`, { ...one, ...counted, ReturnValues: "ALL_OLD" });
  if (done.status === 200) undo.push({ place, old: done.body.Attributes });
  return done;
}

async function takeBack(undo) {
  for (const { place, old } of undo.reverse()) {
    if (old) await ask("PutItem", { TableName: place.TableName, Item: old });
    else await ask("DeleteItem", place);
  }
}

function refusal(type, message) {
  return { status: 400, body: { __type: `com.amazonaws#${type}`, message } };
}

async function answerTo(headers, body) {
  const isTransaction = headers["x-amz-target"] === `${PREFIX}TransactWriteItems`;
  await enter(isTransaction);
  try {
    if (!isTransaction) return await pass(headers, body);
    const { status, body: told } = await transact(JSON.parse(body));
    const type = { "content-type": "application/x-amz-json-1.0" };
    return { status, headers: type, body: JSON.stringify(told) };
  } finally {
    leave();
  }
}

const server = createServer(async (message, response) => {
  let body;
  try {
    body = await whole(message);
  } catch {
    return; // the client was killed in the middle of its request
  }
  const answer = await answerTo(message.headers, body);
  response.writeHead(answer.status, answer.headers);
  response.end(answer.body);
});

inner.listen(0, "127.0.0.1", () => {
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1", () => {
    console.log(`http://127.0.0.1:${server.address().port}`);
  });
});
// It ends with the test that started it.
process.stdin.on("end", () => process.exit());
process.stdin.resume();
