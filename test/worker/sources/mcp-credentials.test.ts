/** How a server is reached: with which credentials, and where never. */
import { describe, expect, test } from 'vitest';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { asked, create, ready, scopes, useHttpSources } from './http-sources.ts';
import { add, statelessServer } from './stand-ins.ts';

const { executed, internet } = useHttpSources();

describe('an MCP server over HTTP', () => {
  test('is shown its credentials, and nobody else is', async () => {
    internet().host('mcp.example.com', statelessServer(add));
    const created = await create({
      name: 'calc',
      url: 'https://mcp.example.com/mcp',
      headers: { 'x-team': 'blue' },
      credentials: { authorization: 'Bearer very-secret' },
    });
    expect(created.text).not.toContain('very-secret');
    expect((await asked('calc')).credential_names).toEqual(['authorization']);
    const [first] = internet().to('mcp.example.com');
    expect(first?.headers.get('authorization')).toBe('Bearer very-secret');
    expect(first?.headers.get('x-team')).toBe('blue');
    const moved = await api('PUT', '/v1/tool_sources/calc', {
      token: await scopes(),
      body: { kind: 'mcp_http', url: 'https://other.example.com/mcp' },
    });
    expect(problemIn(moved).violations?.[0]?.path).toBe('body.credentials');
    const stayed = await api('PUT', '/v1/tool_sources/calc', {
      token: await scopes(),
      body: { kind: 'mcp_http', url: 'https://mcp.example.com/other' },
    });
    expect(stayed.json).toMatchObject({ credential_names: ['authorization'], headers: {} });
    await eventually(() =>
      expect(
        internet()
          .to('mcp.example.com')
          .some(({ url }) => url.endsWith('/other')),
      ).toBe(true),
    );
    expect(internet().to('mcp.example.com').at(-1)?.headers.get('authorization')).toBe('Bearer very-secret');
  });

  test('with OAuth gets tokens by client credentials, and a new one when it takes the old one no more', async () => {
    let valid = 'token-1';
    let given = 0;
    const server = statelessServer(add);
    internet().host('mcp.example.com', (request) =>
      request.headers.get('authorization') === `Bearer ${valid}`
        ? server(request)
        : new Response(null, { status: 401, headers: { 'www-authenticate': 'Bearer' } }),
    );
    internet().host('auth.example.com', async (request) => {
      given += 1;
      const form = new URLSearchParams(await request.text());
      expect(Object.fromEntries(form)).toEqual({
        grant_type: 'client_credentials',
        resource: 'https://mcp.example.com/mcp',
        scope: 'tools',
      });
      expect(request.headers.get('authorization')).toBe(`Basic ${btoa('gate:s3cret%2F')}`);
      return Response.json({ access_token: valid, token_type: 'Bearer', expires_in: 3_600 });
    });
    const oauth = {
      token_url: 'https://auth.example.com/token',
      client_id: 'gate',
      client_secret: 's3cret/',
      scope: 'tools',
    };
    const source = await ready({ name: 'calc', url: 'https://mcp.example.com/mcp', oauth });
    expect(JSON.stringify(source)).not.toContain('s3cret');
    expect(given).toBe(1);
    valid = 'token-2';
    expect(await executed('calc.add', { a: 1, b: 2 })).toMatchObject({ structured: { sum: 3 } });
    expect(given).toBe(2);
  });

  test('is never sought inside', async () => {
    for (const url of [
      'http://mcp.example.com/',
      'https://127.0.0.1/',
      'https://db.internal/',
      'https://a.example.com:8443/',
    ]) {
      expect(problemIn(await create({ name: 'inner', url })).violations?.[0]?.path, url).toBe('body.url');
    }
    const oauth = { token_url: 'https://localhost/token', client_id: 'x' };
    const inner = await create({ name: 'inner', url: 'https://mcp.example.com/', oauth });
    expect(problemIn(inner).violations?.[0]?.path).toBe('body.oauth.token_url');
    internet().host('lead.example.com', () => Response.redirect('https://169.254.169.254/latest', 307));
    expect((await create({ name: 'lead', url: 'https://lead.example.com/mcp' })).status).toBe(201);
    expect((await asked('lead')).status).toBe('failed');
    expect(internet().requests.every(({ url }) => new URL(url).host === 'lead.example.com')).toBe(true);
  });
});
