import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { CreateSessionSchema } from '../../../shared/session.ts';
import { routes } from '../../../worker/routes/table.ts';
import { api } from '../harness/api.ts';

const OperationSchema = z.looseObject({
  operationId: z.string(),
  parameters: z.array(z.looseObject({ name: z.string(), in: z.string() })).optional(),
  security: z.array(z.record(z.string(), z.array(z.string()))),
  responses: z.record(z.string(), z.unknown()),
});
const DocumentSchema = z.looseObject({
  openapi: z.literal('3.1.0'),
  paths: z.record(z.string(), z.record(z.string(), OperationSchema)),
  components: z.looseObject({ schemas: z.record(z.string(), z.looseObject({})) }),
});

async function read(path = '/openapi.json') {
  return DocumentSchema.parse((await api('GET', path)).json);
}

describe('the description of the API', () => {
  test('is public, and the same in both its places', async () => {
    expect(await read()).toEqual(await read('/v1/openapi.json'));
  });

  test('has every route of the table and no other', async () => {
    const { paths } = await read();
    const described = Object.entries(paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(described.toSorted()).toEqual(routes.map((route) => `${route.method} ${route.path}`).toSorted());
  });

  test('refers only to schemas that it has', async () => {
    const document = await read();
    const refs = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map((match) => match[1]);
    expect(refs.length).toBeGreaterThan(10);
    const known = Object.keys(document.components.schemas).map((name) => `#/components/schemas/${name}`);
    expect([...new Set(refs)].filter((ref) => !known.includes(ref ?? ''))).toEqual([]);
  });

  test('names each operation once, and each parameter of its path', async () => {
    const { paths } = await read();
    const operations = Object.entries(paths).flatMap(([path, byMethod]) =>
      Object.values(byMethod).map((operation) => ({ path, operation })),
    );
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { path, operation } of operations) {
      const inPath = [...path.matchAll(/\{([a-z_]+)\}/g)].map((match) => match[1]);
      const named = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path');
      expect(named.map((parameter) => parameter.name)).toEqual(inPath);
    }
  });

  test('describes requests as they may be sent and answers as they come', async () => {
    const { components } = await read();
    expect(components.schemas.CreateSession?.required).toBeUndefined();
    expect(components.schemas.Session?.required).toContain('resource_limits');
    const schema = z.fromJSONSchema({ ...components.schemas.CreateSession });
    for (const body of [
      {},
      { image: 'python', limits: { cpus: 2 } },
      { image: 'python:latest' },
      { uid: 0 },
    ]) {
      expect(schema.safeParse(body).success).toBe(CreateSessionSchema.safeParse(body).success);
    }
  });

  test('says which scopes an operation needs', async () => {
    const { paths } = await read();
    expect(paths['/v1/sessions']?.post?.security).toEqual([{ accessToken: ['sessions:write'] }]);
    expect(paths['/v1/hosts']?.get?.security).toEqual([{ operatorToken: [] }]);
    expect(paths['/healthz']?.get?.security).toEqual([]);
    expect(paths['/v1/execute']?.post?.security).toContainEqual({
      accessToken: ['sessions:write', 'tools:python'],
    });
  });
});

describe('the public documents', () => {
  test('hold the public keys of grants and receipts, and nothing private', async () => {
    const answer = await api('GET', '/.well-known/jwks.json');
    expect(answer.json).toMatchObject({
      keys: [
        { kty: 'OKP', crv: 'Ed25519', alg: 'Ed25519', use: 'sig' },
        { kty: 'OKP', crv: 'Ed25519', alg: 'Ed25519', use: 'sig' },
      ],
    });
    expect(answer.text).not.toContain('"d"');
  });
});
