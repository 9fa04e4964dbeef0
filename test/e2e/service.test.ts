/** The service where systemd runs a machine of its own inside this one. */
import { installAptPackages } from '../../host-agent/setup/apt-packages.ts';
import { PrivateMachine } from '../fixtures/private-machine.ts';
import { describeService } from './service-contract.ts';

describeService('the service of a host that systemd runs', async () => {
  await installAptPackages(() => undefined, ['systemd']);
  return PrivateMachine.boot();
});
