/** Uploads whose clients take their time, by the front door: what they hold, when they end, and what is left of them. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ArtifactUrlSchema } from '../../../shared/artifact.ts';
import { utf8 } from '../../../shared/encoding.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { ORIGIN } from '../issuer-bindings.ts';

const MINUTE_MS = 60_000;
/** What is reserved for an upload that does not say its length. */
const RESERVED_BYTES = 64 * 1024 * 1024;

interface SlowUpload {
  /** Resolves when it is on its way. */
  send: (text: string) => Promise<void>;
  end: () => void;
  answer: Promise<ApiAnswer>;
}

const uploads: SlowUpload[] = [];
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
});
afterEach(async () => {
  vi.useRealTimers();
  for (const { end } of uploads) end();
  await Promise.all(uploads.splice(0).map(({ answer }) => answer));
});

let tenants = 0;
async function newTenant(): Promise<{ name: string; token: string }> {
  tenants += 1;
  const name = `slow-${tenants}`;
  return { name, token: await tokenOf({ claims: { tenant: name, sub: 'alice', exp: nowS() + 86_400 } }) };
}

/** More than an upload may have in memory without a place of its own. */
const A_PART = 'x'.repeat(100_000);

/** An upload of which the first bytes are sent, and nothing more until the test says so. */
function slowUpload(path: string, token?: string, first = 'first'): SlowUpload {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  const ignored = () => undefined;
  const send = (text: string) => writer.write(utf8(text)).catch(ignored);
  void send(first);
  const answer = api('PUT', path, { raw: readable, ...(token === undefined ? {} : { token }) });
  const upload = { send, end: () => void writer.close().catch(ignored), answer };
  uploads.push(upload);
  return upload;
}

const toName = (name: string) => `/v1/artifacts/${name}/content`;

async function storedBytes(token: string): Promise<number> {
  return UsageReportSchema.parse((await api('GET', '/v1/usage', { token })).json).now.storage_bytes;
}

async function begun(token: string, count: number): Promise<void> {
  await eventually(async () => expect(await storedBytes(token)).toBe(count * RESERVED_BYTES));
}

async function ring(name: string): Promise<void> {
  await runDurableObjectAlarm(env.ARTIFACTS.get(env.ARTIFACTS.idFromName(name)));
}

async function keysOf(name: string): Promise<string[]> {
  return (await env.CONTENT.list({ prefix: `artifacts/${name}/` })).objects.map(({ key }) => key);
}

/** What comes of it while time goes on, half a second with each look. */
async function inTime<Found>(
  promise: Promise<Found>,
  meanwhile: () => void = () => undefined,
): Promise<Found> {
  let isSettled = false;
  const settled = promise.finally(() => {
    isSettled = true;
  });
  await eventually(() => {
    meanwhile();
    vi.setSystemTime(Date.now() + 500);
    expect(isSettled).toBe(true);
  });
  return settled;
}

test('uploads take few places of one tenant, no more of all, and lose them when nothing comes for half a minute', async () => {
  const [first, second, third] = [await newTenant(), await newTenant(), await newTenant()];
  const made = await api('POST', '/v1/artifacts/by-address/url', {
    token: third.token,
    body: { method: 'PUT', max_bytes: A_PART.length },
  });
  const address = ArtifactUrlSchema.parse(made.json).url.slice(ORIGIN.length);
  const stalled: SlowUpload[] = [];
  const stall = ({ token }: { token: string }, names: string[]) => {
    for (const name of names) stalled.push(slowUpload(toName(name), token, A_PART));
  };
  const goOn = () => {
    for (const { send } of stalled) void send('.');
  };
  stall(first, ['a', 'b', 'c', 'd']);
  await begun(first.token, 4);
  const fifth = api('PUT', toName('e'), { token: first.token, raw: A_PART });
  expect(problemIn(await inTime(fifth, goOn)).code).toBe('overloaded');
  expect((await api('PUT', toName('e'), { token: third.token, raw: A_PART })).status).toBe(201);
  stall(second, ['a', 'b', 'c', 'd']);
  await begun(second.token, 4);
  const refused = await inTime(api('PUT', address, { raw: A_PART }), goOn);
  expect(problemIn(refused).code).toBe('overloaded');
  expect(Number(refused.headers.get('Retry-After'))).toBeGreaterThan(0);

  for (const answer of await inTime(Promise.all(stalled.map(({ answer }) => answer)))) {
    expect(problemIn(answer)).toMatchObject({ code: 'transfer_failed', detail: 'nothing came for 30 s' });
  }
  expect((await api('PUT', address, { raw: A_PART })).status).toBe(201);
  await eventually(async () => {
    await ring(first.name);
    expect(await storedBytes(first.token)).toBe(0);
  });
  expect(await keysOf(first.name)).toEqual([]);
});

test('uploads of which only a few bytes trickle in take no place of those that come on', async () => {
  const tenant = await newTenant();
  const trickling = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'].map((name) =>
    slowUpload(toName(name), tenant.token),
  );
  await begun(tenant.token, trickling.length);
  expect((await api('PUT', toName('whole'), { token: tenant.token, raw: A_PART })).status).toBe(201);
  for (const { end } of trickling) end();
  for (const { answer } of trickling) expect((await answer).status).toBe(201);
});

test('an upload that holds its place for more than two minutes yields it to one that waits', async () => {
  const tenant = await newTenant();
  const slow = ['a', 'b', 'c', 'd'].map((name) => slowUpload(toName(name), tenant.token, A_PART));
  await begun(tenant.token, slow.length);
  for (let seconds = 0; seconds < 130; seconds += 10) {
    vi.setSystemTime(Date.now() + 10_000);
    await Promise.all(slow.map(({ send }) => send('.')));
  }
  expect((await api('PUT', toName('e'), { token: tenant.token, raw: A_PART })).status).toBe(201);
  const ended = await Promise.race(slow.map(({ answer }) => answer));
  expect(problemIn(ended)).toMatchObject({
    code: 'transfer_failed',
    detail: 'the bytes came slowly, and others waited for the place',
  });
  for (const { end } of slow) end();
  const statuses = await Promise.all(slow.map(async ({ answer }) => (await answer).status));
  expect(statuses.filter((status) => status === 201)).toHaveLength(3);
});

test('an upload that goes on for more than an hour and a half is kept nowhere', async () => {
  const { name, token } = await newTenant();
  const upload = slowUpload(toName('endless'), token);
  await begun(token, 1);
  vi.setSystemTime(Date.now() + 91 * MINUTE_MS);
  void upload.send('more');
  expect(problemIn(await upload.answer)).toMatchObject({
    code: 'transfer_failed',
    detail: 'the bytes took longer than 90 minutes',
  });
  await eventually(async () => {
    await ring(name);
    expect(await storedBytes(token)).toBe(0);
  });
  expect(await keysOf(name)).toEqual([]);
});

test('an upload that was given up before its last byte leaves nothing in the storage', async () => {
  const { name, token } = await newTenant();
  const upload = slowUpload(toName('late'), token);
  await begun(token, 1);
  const nowMs = Date.now();
  vi.setSystemTime(nowMs + 121 * MINUTE_MS);
  await ring(name);
  expect(await storedBytes(token)).toBe(0);
  vi.setSystemTime(nowMs);
  upload.end();
  expect(problemIn(await upload.answer)).toMatchObject({
    code: 'transfer_failed',
    detail: 'the artifact took too long to be stored',
  });
  expect(await keysOf(name)).toEqual([]);
  expect(await storedBytes(token)).toBe(0);
});
