import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { parsePort, requireFreePort } from '../../../scripts/development/port.ts';

test('without PORT it is 8787', () => {
  expect(parsePort(undefined)).toBe(8787);
  expect(parsePort('')).toBe(8787);
  expect(parsePort('9000')).toBe(9000);
});

test.each(['web', '-1', '65536', '80.5', '8787 '])('PORT=%j is refused', (text) => {
  expect(() => parsePort(text)).toThrow('PORT must be a number from 0 to 65535');
});

test('a busy port is one line that names it', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  await expect(requireFreePort(address.port)).rejects.toThrow(
    `port ${address.port} is in use; set PORT to another one`,
  );
});

test('port 0 gives a free one', async () => {
  expect(await requireFreePort(0)).toBeGreaterThan(0);
});
