/**
 * What a call cannot do without, and nothing else: a route, a Durable Object that writes the call down, a signed message to
 * its host, the host's signed answer, the edge's signature under it, and the result written down.
 */
import { DurableObject } from 'cloudflare:workers';
import { Hono } from 'hono';

interface Env {
  ROAD: DurableObjectNamespace<Road>;
}

const ALGORITHM = { name: 'Ed25519' };
const encoder = new TextEncoder();
const decoder = new TextDecoder();
/** One pair for the three signatures of a call; a host's would be another one, and verify as fast. */
let pair: Promise<CryptoKeyPair> | undefined;

export class Road extends DurableObject<Env> {
  readonly #waiting = new Map<number, (result: string) => void>();
  #host: WebSocket | undefined;
  #calls = 0;

  constructor(context: DurableObjectState, env: Env) {
    super(context, env);
    context.storage.sql.exec(
      'CREATE TABLE calls (n INTEGER PRIMARY KEY, status TEXT, request TEXT, result TEXT)',
    );
  }

  override fetch(): Response {
    const { 0: client, 1: server } = new WebSocketPair();
    this.ctx.acceptWebSocket(server);
    this.#host = server;
    return new Response(null, { status: 101, webSocket: client });
  }

  async call(request: string): Promise<string> {
    this.#calls += 1;
    const n = this.#calls;
    this.ctx.storage.sql.exec('INSERT INTO calls VALUES (?, ?, ?, NULL)', n, 'granted', request);
    const { privateKey } = await keys();
    const grant = encoder.encode(JSON.stringify({ n, request }));
    const signature = new Uint8Array(await crypto.subtle.sign(ALGORITHM, privateKey, grant));
    const result = new Promise<string>((resolve) => this.#waiting.set(n, resolve));
    this.#host?.send(JSON.stringify({ n, request, signature: [...signature] }));
    return result;
  }

  /** The host sends back what it got. */
  override async webSocketMessage(_: WebSocket, message: string): Promise<void> {
    const { n }: { n: number } = JSON.parse(message);
    const { privateKey, publicKey } = await keys();
    const receipt = encoder.encode(message);
    const signature = await crypto.subtle.sign(ALGORITHM, privateKey, receipt);
    if (!(await crypto.subtle.verify(ALGORITHM, publicKey, signature, receipt))) return;
    const result = decoder.decode(receipt);
    this.ctx.storage.sql.exec('UPDATE calls SET status = ?, result = ? WHERE n = ?', 'succeeded', result, n);
    this.#waiting.get(n)?.(result);
    this.#waiting.delete(n);
  }
}

function keys(): Promise<CryptoKeyPair> {
  pair ??= generate();
  return pair;
}

async function generate(): Promise<CryptoKeyPair> {
  const generated = await crypto.subtle.generateKey(ALGORITHM, false, ['sign', 'verify']);
  if (!('privateKey' in generated)) throw new Error('a pair of keys was expected');
  return generated;
}

const app = new Hono<{ Bindings: Env }>();
app.get('/plain', (c) => c.json({ status: 'ok' }));
app.get('/link', (c) => c.env.ROAD.getByName('road').fetch(c.req.raw));
app.post('/call', async (c) => {
  const { arguments: given }: { arguments: unknown } = await c.req.json();
  const result = await c.env.ROAD.getByName('road').call(JSON.stringify(given));
  return c.json({ status: 'succeeded', result });
});

export default app;
