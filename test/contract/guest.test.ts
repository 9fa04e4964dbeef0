/** The guest's own suite inside real gVisor: the same that its tests run as a plain process. */

import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { startRawSandbox } from '../fixtures/raw-sandbox.ts';
import { describeGuest } from '../host-agent/guest/describe-guest.ts';

describeGuest('in gVisor', async () => {
  const installation = await setUp(locations(process.env), process.env, silentProgress);
  return { ...(await startRawSandbox(installation)), programs: '/sandgate', work: '/workspace' };
});
