import { describeGuest } from './describe-guest.ts';
import { startPlain } from './plain-supervisor.ts';

describeGuest('as a process of this machine', startPlain, { node: process.execPath });
