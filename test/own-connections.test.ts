import './fixtures/own-connections.ts';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';

test('a request takes no connection that another one has used', async () => {
  const connections = new Set<Socket>();
  const server = createServer((request, response) => {
    connections.add(request.socket);
    response.end('answered');
  });
  server.listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the server has no port');
  for (let count = 0; count < 3; count += 1)
    expect(await (await fetch(`http://127.0.0.1:${address.port}/`)).text()).toBe('answered');
  expect(connections.size).toBe(3);
});
