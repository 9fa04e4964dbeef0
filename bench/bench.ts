/** `npm run bench`: ours against the raw operation, all in one run on one machine, printed as one table. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setUp } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { startStack } from '../scripts/development/stack.ts';
import { locations } from '../scripts/locations.ts';
import { Api } from './api.ts';
import { measureCalls } from './calls.ts';
import { measureFiles } from './files.ts';
import { measureForks } from './forks.ts';
import { measureGateway } from './gateway.ts';
import { measurePool } from './pool.ts';
import { startRawOperations } from './raw-sandbox.ts';
import { measureSearch } from './search.ts';
import { measureStream } from './stream.ts';
import { measureSuspension } from './suspension.ts';
import { printTable } from './table.ts';
import { measureToolRoads } from './tool-roads.ts';
import { measureWaiting } from './waiting.ts';

const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-'));
const places = { ...locations(process.env), stateDir };
const installation = await setUp(places, process.env, terminalProgress(process.stdout));
const stack = await startStack({ locations: places, installation, port: 0 });
const api = new Api(stack.url, await stack.token());
const raw = await startRawOperations(installation).catch(async (error: unknown) => {
  await stack.stop();
  throw error;
});
try {
  const session = await api.createSession();
  const [hostAgent, workerd] = [stack.hostAgentPid(), stack.workerdPid()];
  if (hostAgent === undefined || workerd === undefined) throw new Error('the stack is not whole');
  const calls = await measureCalls(api, session.session_id, raw);
  const stream = await measureStream(api, session.session_id, raw, { hostAgent, workerd });
  const files = await measureFiles(api, session.session_id, installation, { hostAgent, workerd });
  const roads = await measureToolRoads(api, session.session_id);
  await api.deleteSession(session.session_id);
  const suspension = await measureSuspension(api, installation, stateDir);
  const waiting = await measureWaiting(api);
  const forks = await measureForks(api);
  const gateway = await measureGateway(places, installation);
  const pool = await measurePool(installation);
  const search = await measureSearch(places.cacheDir);
  console.log('');
  const parts = [suspension, waiting, forks, files, roads, search, pool];
  printTable([...calls, ...gateway, ...stream.lines, ...parts.flatMap(({ lines }) => lines)]);
  for (const note of [...stream.notes, ...parts.flatMap(({ notes }) => notes)]) console.log(note);
} finally {
  await api.close();
  await raw.stop();
  await stack.stop();
  await rm(stateDir, { recursive: true, force: true });
}
