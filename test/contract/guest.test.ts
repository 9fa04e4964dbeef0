/** The guest's own suite inside real gVisor: the same that its tests run as a plain process. */
import { locations } from '../../scripts/locations.ts';
import { setUp } from '../../scripts/setup/setup.ts';
import { silentProgress } from '../../scripts/setup/step.ts';
import { startRawSandbox } from '../fixtures/raw-sandbox.ts';
import { describeGuest } from '../host-agent/guest/describe-guest.ts';

describeGuest('in gVisor', async () => {
  const installation = await setUp(locations(process.env), process.env, silentProgress);
  return { ...(await startRawSandbox(installation)), programs: '/sandgate', work: '/workspace' };
});
