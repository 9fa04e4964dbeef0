/** The service where systemd is the machine's own first process. */
import { describeService } from '../e2e/service-contract.ts';
import { ThisMachine } from './this-machine.ts';

describeService('the service of a host on a whole machine', async () => ThisMachine.open());
