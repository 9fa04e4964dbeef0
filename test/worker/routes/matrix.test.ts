/**
 * Every route that the router has against every kind of caller and every kind of id. The rows come from the router's own
 * table: a new route is in here by itself, and one that needs a body to come as far as its ids fails until it has a row.
 */
import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId, newSessionId } from '../../../shared/ids.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { SnapshotSchema } from '../../../shared/snapshot-resource.ts';
import { CreatedWebhookSchema } from '../../../shared/webhook.ts';
import { WorkflowSchema } from '../../../shared/workflow.ts';
import { adapterRoutes } from '../../../worker/adapters/table.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { routes } from '../../../worker/routes/table.ts';
import type { Route } from '../../../worker/routing/route.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const call = { tool_name: 'shell', arguments: { command: 'x' } };
const TOOL = {
  name: 'secret_tool',
  description: 'Nobody else sees it',
  kind: 'code',
  language: 'python',
  code: 'def main():\n    pass',
};
const SOURCE = {
  name: 'secret-source',
  kind: 'manifest',
  url: 'https://tools.example.com/m.json',
  disabled: true,
};
const PROGRAM = { language: 'python', code: '1' };
const WEBHOOK = { url: 'https://hooks.example.com/' };
const WORKFLOW = { tasks: { one: call } };

/** What a request needs to come as far as its ids; a route without a row is asked with nothing. */
const REQUESTS: Readonly<Record<string, ApiOptions>> = {
  createSession: { body: {} },
  updateSession: { body: {} },
  execute: { body: call },
  executeOnce: { body: call },
  writeStdin: { body: { data: 'x' } },
  interrupt: { body: {} },
  startProcess: { body: { command: 'x' } },
  waitForProcess: { body: { exit: true } },
  writeProcessStdin: { body: { data: 'x' } },
  toolCalls: {
    body: {
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'shell', arguments: '{"command":"x"}' } }],
    },
  },
  streamExecution: {},
  openTerminal: { headers: { Upgrade: 'websocket' } },
  searchTools: {},
  registerTool: { body: { ...TOOL, name: 'own_tool' } },
  replaceTool: { body: TOOL },
  createToolSource: { body: { ...SOURCE, name: 'own-source' } },
  replaceToolSource: { body: SOURCE },
  createProgram: { body: PROGRAM },
  answerCalls: { body: { results: [{ id: `tcl_${'A'.repeat(22)}`, content: 'x' }], detach: true } },
  rollbackSession: { body: { snapshot_id: `snp_${'A'.repeat(22)}` } },
  createRepairRun: { body: { code: '1', model: { tool_name: TOOL.name, name: 'm' } } },
  decideApproval: { body: { decision: 'approve' } },
  createWorkflow: { body: WORKFLOW },
  createSnapshot: { body: { name: 'kept' } },
  keepArtifact: { body: { path: 'a.txt' } },
  writeArtifact: { raw: 'x' },
  createArtifactUrl: { body: { method: 'GET' } },
  filesFrom: { body: { artifact: 'nobody_artifact', path: 'x' } },
  createWebhook: { body: WEBHOOK },
  replaceWebhook: { body: WEBHOOK },
};
/** Of these the name is the caller's to choose: it makes a thing of the caller's own. */
const MAKES_ITS_OWN = new Set(['replaceTool', 'replaceToolSource', 'writeArtifact']);

interface Ids {
  session_id: string;
  execution_id: string;
  process_id: string;
  program_id: string;
  repair_run_id: string;
  workflow_id: string;
  snapshot_id: string;
  artifact_name: string;
  webhook_id: string;
  name: string;
}
const KINDS = [
  'session_id',
  'execution_id',
  'process_id',
  'program_id',
  'repair_run_id',
  'workflow_id',
  'snapshot_id',
  'artifact_name',
  'webhook_id',
  'name',
] as const;
type Kind = (typeof KINDS)[number];

const claims = { acme: { tenant: 'acme' }, globex: { tenant: 'globex' } };
const alice = () => tokenOf({ claims: { ...claims.acme, sub: 'alice' } });
/** Same tenant, another subject; and another tenant, the same subject. */
const STRANGERS = [
  ['another subject of the tenant', 'acme', 'bob'],
  ['another tenant', 'globex', 'alice'],
] as const;

let host: HostDouble;
let owned: Ids;

beforeAll(async () => {
  host = await connectFakeHost({ capacity: 1_000 });
  owned = await thingsOf(await alice());
  const token = await alice();
  for (const [path, body] of [
    ['/v1/tools', TOOL],
    ['/v1/tool_sources', SOURCE],
  ] as const) {
    const made = await api('POST', path, { token, body });
    expect(made.status, made.text).toBe(201);
  }
});
afterEach(() => {
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

/** A session with an execution that ended, a snapshot of it, and a workflow. */
async function thingsOf(token: string): Promise<Ids> {
  const session = SessionSchema.parse((await api('POST', '/v1/sessions', { token, body: {} })).json);
  const { session_id } = session;
  const ran = await api('POST', `/v1/sessions/${session_id}/execute`, { token, body: call });
  const kept = await api('POST', `/v1/sessions/${session_id}/snapshots`, { token, body: { name: 'kept' } });
  // Names are of their owner: that of somebody else must not be one of the caller's too.
  const artifactName = newId('art');
  const artifact = await api('PUT', `/v1/artifacts/${artifactName}/content`, { token, raw: 'x' });
  expect(artifact.status, artifact.text).toBe(201);
  const program = await api('POST', `/v1/sessions/${session_id}/programs`, { token, body: PROGRAM });
  const webhook = await api('POST', '/v1/webhooks', { token, body: WEBHOOK });
  const workflow = await api('POST', '/v1/workflows', { token, body: WORKFLOW });
  const { workflow_id } = WorkflowSchema.parse(workflow.json);
  await eventually(async () => {
    const now = await api('GET', `/v1/workflows/${workflow_id}`, { token });
    expect(WorkflowSchema.parse(now.json).status).not.toBe('running');
  });
  return {
    session_id,
    execution_id: ExecutionSchema.parse(ran.json).execution_id,
    process_id: newId('prc'),
    program_id: ProgramSchema.parse(program.json).program_id,
    repair_run_id: `rpr_${newId('exe').slice(4)}`,
    workflow_id,
    snapshot_id: SnapshotSchema.parse(kept.json).snapshot_id,
    artifact_name: artifactName,
    webhook_id: CreatedWebhookSchema.parse(webhook.json).webhook_id,
    name: TOOL.name,
  };
}

/** Ids of the right form that nobody was given. */
async function nothings(tenant: string): Promise<Ids> {
  const { tagKey } = await configurationOf(env);
  return {
    session_id: await newSessionId(tagKey, tenant),
    execution_id: newId('exe'),
    process_id: newId('prc'),
    program_id: newId('exe'),
    repair_run_id: `rpr_${newId('exe').slice(4)}`,
    workflow_id: `wfl_${newId('exe').slice(4)}`,
    snapshot_id: `snp_${newId('exe').slice(4)}`,
    artifact_name: 'nobody_artifact',
    webhook_id: newId('whk'),
    name: 'nobody_tool',
  };
}

function pathOf(route: Route, ids: Partial<Ids>): string {
  const values: Record<string, string> = {
    path: 'x',
    handle: 'x',
    stream: 'stdout',
    host_id: newId('hst'),
    tenant: 'acme',
    ...ids,
  };
  const path = route.path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => values[name] ?? 'x');
  if (path.includes('tool_sources')) return path.replaceAll('_tool', '-source');
  return path;
}

const requestOf = (route: Route): ApiOptions => REQUESTS[route.operationId] ?? {};
const has = (route: Route, kind: Kind): boolean => route.path.includes(`{${kind}}`);
const all = [...routes, ...adapterRoutes];
const label = (route: Route): string => `${route.method} ${route.path}`;

interface Seen {
  status: number;
  headers: [string, string][];
  body: string;
}

/** The answer but for what every request has of its own; `names` are what the request itself said. */
async function seen(route: Route, ids: Ids, token: string, names: readonly string[]): Promise<Seen> {
  const response = await request(route.method, pathOf(route, ids), { token, ...requestOf(route) });
  const id = response.headers.get('Request-Id') ?? '';
  const plain = (text: string): string =>
    names.reduce((left, name) => left.replaceAll(name, 'ASKED'), text.replaceAll(id, 'ID'));
  const headers = [...response.headers].filter(([name]) => !/^(request-id|ratelimit.*|date)$/i.test(name));
  const body = response.body === null ? '' : await response.text();
  return { status: response.status, headers, body: plain(body) };
}

describe('the table', () => {
  test('has as many routes as the router, each with a name of its own', () => {
    expect(new Set(all.map(label)).size).toBe(all.length);
    expect(new Set(routes.map(({ operationId }) => operationId)).size).toBe(routes.length);
    expect(
      Object.keys(REQUESTS).filter((name) => !routes.some((route) => route.operationId === name)),
    ).toEqual([]);
  });

  test('names no kind of id that is not tried here', () => {
    const named = new Set(
      routes
        .filter(({ access }) => access.kind === 'tenant')
        .flatMap(({ path }) => path.match(/(?<=\{)[a-z_]+/g) ?? []),
    );
    named.delete('path');
    named.delete('stream');
    expect([...named].filter((name) => !KINDS.some((kind) => kind === name))).toEqual([]);
  });
});

describe('without a token that fits', () => {
  const guarded = all.filter(({ access }) => access.kind !== 'public');
  const options = (route: Route) => requestOf(route);

  test.each(guarded.map((route) => [label(route), route] as const))(
    '%s is refused, and wakes nothing',
    async (_, route) => {
      const before = await awake();
      const path = pathOf(route, owned);
      const isOurs = routes.includes(route);
      const send = async (token?: string) => {
        const response = await request(route.method, path, {
          ...options(route),
          ...(token === undefined ? {} : { token }),
        });
        return { status: response.status, headers: response.headers, text: await response.text() };
      };
      for (const token of [undefined, host.certificate, `enr_default.${'a'.repeat(65)}`, 'x.y.z']) {
        const answer = await send(token);
        expect(answer.status, answer.text).toBe(401);
        if (isOurs) expect(answer.headers.get('WWW-Authenticate')).toMatch(/^Bearer .*resource_metadata=/);
      }
      const wrongKind = await send(route.access.kind === 'tenant' ? OPERATOR_TOKEN : await alice());
      expect(wrongKind.status, wrongKind.text).toBe(403);
      if (route.access.kind === 'tenant' && (route.access.scopes ?? []).length > 0) {
        const bare = await send(await tokenOf({ claims: { ...claims.acme, sub: 'alice', scope: '' } }));
        expect(bare.status, bare.text).toBe(403);
      }
      expect(await awake()).toBe(before);
    },
  );

  /** Objects of sessions, pools and hosts. */
  async function awake(): Promise<number> {
    const spaces = [env.SESSION, env.POOL, env.HOST];
    return (await Promise.all(spaces.map((space) => listDurableObjectIds(space)))).flat().length;
  }
});

describe.each(STRANGERS)('to %s', (_who, tenant, subject) => {
  const token = () => tokenOf({ claims: { tenant, sub: subject } });
  /** These are of the whole tenant; a process is known to its own sandbox only, whoever asks. */
  const ofTenant: readonly Kind[] = ['name', 'webhook_id'];
  const kinds = KINDS.filter(
    (kind) => kind !== 'process_id' && (tenant === 'globex' || !ofTenant.includes(kind)),
  );
  const rows = routes
    .filter((route) => route.access.kind === 'tenant' && !MAKES_ITS_OWN.has(route.operationId))
    .flatMap((route) =>
      kinds.filter((kind) => has(route, kind)).map((kind) => [label(route), kind, route] as const),
    );

  test.each(rows)(
    '%s with a foreign %s answers byte for byte like a missing one',
    async (_label, kind, route) => {
      const own = await ownIds(await token());
      const missing = { ...own, [kind]: (await nothings(tenant))[kind] };
      const foreign = { ...own, [kind]: owned[kind] };
      const names = [missing[kind], foreign[kind], 'nobody-source', SOURCE.name];
      const answers = [
        await seen(route, foreign, await token(), names),
        await seen(route, missing, await token(), names),
      ];
      expect(answers[0]).toEqual(answers[1]);
      expect(answers[0]?.status, `${answers[0]?.body}: does the route need a row in REQUESTS?`).toBe(404);
    },
  );

  let ids: Ids | undefined;
  async function ownIds(own: string): Promise<Ids> {
    ids ??= await thingsOf(own);
    return ids;
  }
});

describe('the owner', () => {
  /** Of a process, a call, an approval or a run that there never was, and with a tool of another kind than is needed. */
  const ABSENT = new Set([
    'getProcess',
    'readProcessLogs',
    'waitForProcess',
    'writeProcessStdin',
    'stopProcess',
    'answerCalls',
    'decideApproval',
    'rollbackSession',
    'getRepairRun',
    'cancelRepairRun',
    'createRepairRun',
    'filesFrom',
  ]);
  const LAST = [
    'deleteArtifact',
    'deleteSnapshot',
    'deleteWebhook',
    'removeTool',
    'removeToolSource',
    'deleteSession',
  ];
  const order = (route: Route): number => LAST.indexOf(route.operationId);
  const rows = routes
    .filter((route) => route.access.kind === 'tenant' && KINDS.some((kind) => has(route, kind)))
    .filter(({ operationId }) => !ABSENT.has(operationId))
    .toSorted((left, right) => order(left) - order(right));

  test('has it all still: nothing that was tried above had an effect', async () => {
    const token = await alice();
    const session = SessionSchema.parse(
      (await api('GET', `/v1/sessions/${owned.session_id}`, { token })).json,
    );
    expect(session).toMatchObject({ state: 'running', executions: { total: 2 } });
    expect(host.session(owned.session_id).executions.size).toBe(2);
    expect(host.session(owned.session_id).transfers.size).toBe(0);
    expect((await api('GET', `/v1/tools/${TOOL.name}`, { token })).status).toBe(200);
    expect((await api('GET', `/v1/tool_sources/${SOURCE.name}`, { token })).status).toBe(200);
  });

  test.each(rows.map((route) => [label(route), route] as const))('may use %s', async (_, route) => {
    const response = await request(route.method, pathOf(route, owned), {
      token: await alice(),
      ...requestOf(route),
    });
    expect([401, 403, 404, 405], await textOf(response)).not.toContain(response.status);
  });
});

async function textOf(response: Response): Promise<string> {
  response.webSocket?.accept();
  response.webSocket?.close();
  // That of a session ends with it.
  if (response.headers.get('Content-Type') === 'text/event-stream') {
    await response.body?.cancel();
    return '';
  }
  return response.body === null ? '' : response.text();
}

test('a session that is another one’s is missing also in lists, by every cursor', async () => {
  for (const [, tenant, sub] of STRANGERS) {
    const listed = await api('GET', '/v1/sessions?limit=100', {
      token: await tokenOf({ claims: { tenant, sub } }),
    });
    expect(listed.text).not.toContain(owned.session_id);
  }
  const answer = await api('GET', `/v1/sessions/${owned.session_id}`, {
    token: await tokenOf({ claims: { tenant: 'globex' } }),
  });
  expect(problemIn(answer).code).toBe('not_found');
});
