/** `enroll`: makes this host's key, proves it to the edge, and starts the service. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import * as z from 'zod';
import { agentVersion } from '../configuration.ts';
import { identityOf } from '../edge/enrolment.ts';
import { lockState, probeWritable } from '../journal/state-lock.ts';
import { CommandFailure, fromFailure, wrongUse } from './failure.ts';
import { SERVICE } from './layout.ts';
import { hasSystemd, systemctl } from './service.ts';
import { writeSettings } from './settings.ts';
import type { Subcommand } from './subcommand.ts';

const EdgeUrlSchema = z.url({ protocol: /^https?$/ });
const TokenSchema = z.string().min(22).max(256);
const LOOPBACK = /^(127\.\d+\.\d+\.\d+|localhost|\[::1\])$/;

export const enroll: Subcommand = {
  summary: 'Enrols this host with an edge. The token is spent; "-" reads it from standard input.',
  usage: '<edge URL> <token | -> [--origin URL]',
  options: { origin: { type: 'string' } },
  positionals: [2, 2],
  async run({ layout, positionals, text }) {
    const [url = '', given = ''] = positionals;
    const edgeUrl = requireUrl(url, 'the edge URL');
    const originText = text('origin');
    const origin = originText === undefined ? edgeUrl : requireUrl(originText, '--origin');
    const enrolmentToken = TokenSchema.safeParse(
      (given === '-' ? await readAll(process.stdin) : given).trim(),
    );
    if (!enrolmentToken.success)
      throw wrongUse('the token has 22 to 256 characters; make one with POST /v1/enrollment-tokens');
    const { hostDir, settingsPath } = layout;
    if (!existsSync(layout.unitPath))
      throw new CommandFailure('Sandgate is not installed here: sandgate-host install');
    const lock = await lockState(hostDir);
    if (!lock.ok) throw new CommandFailure('the agent runs: this host is enrolled, or being enrolled');
    try {
      // The token is spent before the identity is written.
      const writable = await probeWritable(hostDir);
      if (!writable.ok) throw fromFailure(writable);
      if (existsSync(join(hostDir, 'identity.json'))) {
        throw new CommandFailure(
          `this host is enrolled; remove ${hostDir}/identity.json to enrol it as a new one`,
        );
      }
      const identity = await identityOf({
        directory: hostDir,
        edgeUrl: edgeUrl.href,
        edgeOrigin: origin.origin,
        enrolmentToken: enrolmentToken.data,
        agentVersion: agentVersion(),
      });
      if (!identity.ok) throw fromFailure(identity);
      await writeSettings(settingsPath, {
        SANDGATE_EDGE_URL: edgeUrl.href.replace(/\/$/, ''),
        SANDGATE_EDGE_ORIGIN: origin.origin,
      });
      console.log(`enrolled as ${identity.value.hostId} with ${identity.value.edgeOrigin}`);
    } finally {
      await lock.value.release();
    }
    await systemctl(layout, 'restart', SERVICE);
    if (!hasSystemd(layout)) console.log('systemd does not run here: start the service by hand');
    return 0;
  },
};

/** Keys and grants cross this link, so plain HTTP is for loopback only. */
function requireUrl(text: string, what: string): URL {
  if (!EdgeUrlSchema.safeParse(text).success)
    throw wrongUse(`${what} must be https://…, not ${text.slice(0, 200)}`);
  const url = new URL(text);
  if (url.protocol === 'http:' && !LOOPBACK.test(url.hostname))
    throw wrongUse(`${what} must be https://, except on loopback`);
  return url;
}
