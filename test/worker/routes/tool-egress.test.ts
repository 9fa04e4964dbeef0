/** Where an HTTP tool goes when its service sends it elsewhere, slowly, or too much. */
import { describe, expect, test } from 'vitest';
import { api } from '../harness/api.ts';
import { ORIGIN } from '../issuer-bindings.ts';
import { scopes, useHttpSources } from '../sources/http-sources.ts';

const { internet, executed } = useHttpSources();
const SERVICE = 'api.example.com';
const OTHER = 'other.example.org';
const SECRET = 'Bearer very-secret-value';
const REDIRECTS = [301, 302, 303, 307, 308];

async function register(method: 'GET' | 'POST'): Promise<void> {
  const body = {
    description: 'Looks something up',
    kind: 'http',
    method,
    url: `https://${SERVICE}/first`,
    credentials: { authorization: SECRET },
  };
  const put = await api('PUT', '/v1/tools/lookup', { token: await scopes(), body });
  expect(put.status, put.text).toBeLessThan(300);
}

const ask = (more: object = {}) => executed('lookup', {}, more);
const redirect = (status: number, location: string) => () =>
  new Response('elsewhere', { status, headers: { location } });
const asked = () => internet().requests.map(({ url }) => url);

describe('an HTTP tool whose service sends it elsewhere', () => {
  test.each(REDIRECTS)('by %i goes there without its credentials', async (status) => {
    await register('GET');
    internet().host(SERVICE, redirect(status, `https://${OTHER}/x`));
    internet().host(OTHER, () => new Response('there'));
    expect(await ask()).toMatchObject({ status: 'succeeded', stdout: 'there' });
    const headers = internet().requests.map((request) => request.headers.get('authorization'));
    expect(headers).toEqual([SECRET, null]);
  });

  test.each(REDIRECTS)('by %i does not send its body there', async (status) => {
    await register('POST');
    internet().host(SERVICE, redirect(status, `https://${OTHER}/x`));
    expect(await ask()).toMatchObject({ status: 'failed', error: { name: 'RedirectRefused' } });
    expect(asked()).toEqual([`https://${SERVICE}/first`]);
  });

  test.each(REDIRECTS)('by %i is not led inside', async (status) => {
    await register('GET');
    internet().host(SERVICE, redirect(status, 'https://169.254.169.254/latest/meta-data'));
    expect(await ask()).toMatchObject({ status: 'failed', error: { name: 'AddressRefused' } });
    expect(asked()).toEqual([`https://${SERVICE}/first`]);
  });

  test('is not led inside by the last of several steps', async () => {
    await register('GET');
    const steps = new Map([
      ['/first', `https://${OTHER}/second`],
      ['/second', `https://${SERVICE}/third`],
      ['/third', 'https://127.0.0.1/inside'],
    ]);
    const answer = ({ url }: Request) => redirect(302, steps.get(new URL(url).pathname) ?? '')();
    for (const host of [SERVICE, OTHER]) internet().host(host, answer);
    expect(await ask()).toMatchObject({ status: 'failed', error: { name: 'AddressRefused' } });
    expect(asked().map((url) => new URL(url).pathname)).toEqual([...steps.keys()]);
  });

  test('on and on is not followed for ever', async () => {
    await register('GET');
    internet().host(SERVICE, redirect(302, '/first'));
    expect(await ask()).toMatchObject({ status: 'failed', error: { name: 'RedirectRefused' } });
    expect(asked()).toHaveLength(4);
  });

  test.each([
    ['without a scheme', '//127.0.0.1/inside'],
    ['with backslashes', '/\\127.0.0.1/inside'],
    ['with backslashes for a scheme', 'https:\\\\localhost\\inside'],
    ['with a tab in its address', 'https://127.0.\t0.1/inside'],
    ['with a password', `https://user:password@${OTHER}/`],
    ['of another scheme', `ftp://${OTHER}/`],
    ['of a file', 'file:///etc/passwd'],
    ['of data', 'data:text/plain,inside'],
    ['of this gateway', `${ORIGIN}/v1/sessions`],
  ])('is not led to a place %s', async (_, location) => {
    await register('GET');
    internet().host(SERVICE, redirect(302, location));
    expect(await ask()).toMatchObject({ status: 'failed', error: { name: 'AddressRefused' } });
    expect(asked()).toEqual([`https://${SERVICE}/first`]);
  });

  test.each([
    ['without a scheme', `//${OTHER}/there`, `https://${OTHER}/there`],
    ['with ends of lines', `//${OTHER}/%0d%0aX-Evil:%201`, `https://${OTHER}/%0d%0aX-Evil:%201`],
  ])(
    'to a place %s goes there as it is written, and no header of it comes along',
    async (_, location, url) => {
      await register('GET');
      internet().host(SERVICE, redirect(302, location));
      internet().host(OTHER, () => new Response('there'));
      expect(await ask()).toMatchObject({ status: 'succeeded', stdout: 'there' });
      const [, second] = internet().requests;
      expect(second?.url).toBe(url);
      expect([...(second?.headers.keys() ?? [])].toSorted()).toEqual(['accept', 'user-agent']);
    },
  );
});

describe('an HTTP tool whose service', () => {
  test('sends a byte now and then ends as timeout', async () => {
    await register('GET');
    internet().host(SERVICE, ({ signal }) => {
      const body = new ReadableStream<Uint8Array>({
        start: (controller) => {
          // As a fetch whose answer is under way: only its signal ends it.
          signal.addEventListener('abort', () => controller.error(signal.reason));
        },
        pull: async (controller) => {
          await new Promise((resolve) => setTimeout(resolve, 100));
          if (!signal.aborted) controller.enqueue(new Uint8Array([97]));
        },
      });
      return new Response(body);
    });
    expect(await ask({ timeout_ms: 1_000 })).toMatchObject({ status: 'timeout', stdout: '' });
    expect(asked()).toEqual([`https://${SERVICE}/first`]);
  });

  test('sends little that becomes much is cut off long before the end', async () => {
    await register('GET');
    const MIB = 1024 * 1024;
    const zeros = new Response(new Uint8Array(64 * MIB)).body;
    const packed = await new Response(zeros?.pipeThrough(new CompressionStream('gzip'))).arrayBuffer();
    expect(packed.byteLength).toBeLessThan(MIB);
    let unpacked = 0;
    internet().host(SERVICE, () => {
      const counted = new TransformStream<Uint8Array, Uint8Array>({
        transform: (chunk, controller) => {
          unpacked += chunk.length;
          controller.enqueue(chunk);
        },
      });
      // What a fetch gives of an answer with this encoding.
      const body = new Response(packed).body?.pipeThrough(new DecompressionStream('gzip'));
      return new Response(body?.pipeThrough(counted), { headers: { 'content-encoding': 'gzip' } });
    });
    expect(await ask()).toMatchObject({ status: 'failed', error: { name: 'AnswerTooLarge' }, stdout: '' });
    expect(unpacked).toBeGreaterThan(MIB);
    expect(unpacked).toBeLessThan(8 * MIB);
  });
});
