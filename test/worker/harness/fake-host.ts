/** A host double inside the Worker's tests: it dials through the gateway's own door. */
import { env, exports } from 'cloudflare:workers';
import {
  enrollDouble,
  type HostDouble,
  type HostDoubleOptions,
} from '../../fixtures/host-double/host-double.ts';
import type { DoubleTransport } from '../../fixtures/host-double/transport.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';
import { api } from './api.ts';

export const workerTransport: DoubleTransport = {
  origin: ORIGIN,
  async post(path, body) {
    const response = await exports.default.fetch(
      new Request(`${ORIGIN}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    );
    return { status: response.status, json: await response.json() };
  },
  async send(method, path, token, bytes) {
    const response = await exports.default.fetch(
      new Request(`${ORIGIN}${path}`, {
        method,
        headers: { authorization: `Bearer ${token}` },
        ...(bytes === undefined ? {} : { body: bytes }),
      }),
    );
    return { status: response.status, bytes: new Uint8Array(await response.arrayBuffer()) };
  },
  async connect(path, headers, listener) {
    const response = await exports.default.fetch(
      new Request(`${ORIGIN}${path}`, { headers: { ...headers, upgrade: 'websocket' } }),
    );
    const socket = response.webSocket;
    if (socket === null) throw new Error(`no link: ${response.status} ${await response.text()}`);
    socket.binaryType = 'arraybuffer';
    // Before the socket is accepted: what lies ready is delivered at once.
    socket.addEventListener('message', ({ data }) =>
      listener.message(data instanceof ArrayBuffer ? new Uint8Array(data) : String(data)),
    );
    socket.addEventListener('close', ({ code, reason }) => listener.closed(code, reason));
    socket.accept();
    return socket;
  },
};

/**
 * At the end of a test that may have aborted the objects: a link that ended with them is missed late, and the next test's
 * session would be offered to this host first.
 */
export async function retireFakeHost(host: HostDouble): Promise<void> {
  const cordoned = await api('POST', `/v1/hosts/${host.hostId}/cordon`, { token: OPERATOR_TOKEN });
  if (cordoned.status !== 200) throw new Error(`not cordoned: ${cordoned.text}`);
  host.close();
}

/** Enrols a host in the pool `default` and brings up its control link. */
export async function connectFakeHost(options: HostDoubleOptions = {}): Promise<HostDouble> {
  const token = await env.POOL.getByName('default').createEnrollmentToken({ pool: 'default' });
  if (!token.ok) throw new Error(token.detail);
  const host = await enrollDouble(workerTransport, token.value.enrollment_token, options);
  await host.connect();
  return host;
}
