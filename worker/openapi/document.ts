/** The description of the API (OpenAPI 3.1), made from the same table and schemas as the API itself. */
import type * as z from 'zod';
import { ERRORS, type ErrorCode } from '../../shared/errors.ts';
import { PROBLEM_MEDIA_TYPE, ProblemSchema } from '../../shared/problem.ts';
import { JSON_MEDIA_TYPE } from '../middleware/body.ts';
import type { RouteDocumentation } from '../routing/route.ts';
import { Components, type JsonSchema } from './components.ts';

export function openApiDocument(routes: readonly RouteDocumentation[], origin: string): JsonSchema {
  const components = new Components();
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    paths[route.path] = {
      ...paths[route.path],
      [route.method.toLowerCase()]: operationOf(route, components),
    };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sandgate',
      version: '1',
      description: 'Durable, isolated computers for agents.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: origin }],
    paths,
    components: {
      schemas: components.all(),
      securitySchemes: {
        accessToken: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'JWT',
          description: 'An access token of a configured issuer (RFC 9068).',
        },
        operatorToken: { type: 'http', scheme: 'bearer', description: "The operator's token." },
      },
    },
  };
}

function operationOf(route: RouteDocumentation, components: Components): JsonSchema {
  const parameters = [...pathParameters(route), ...queryParameters(route, components), ...headers(route)];
  const requestBody = requestBodyOf(route, components);
  return {
    operationId: route.operationId,
    summary: route.summary,
    security: securityOf(route),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(requestBody === undefined ? {} : { requestBody }),
    responses: merged(answersOf(route, components), refusalsOf(route, components)),
  };
}

function securityOf({ access }: RouteDocumentation): JsonSchema[] {
  if (access.kind === 'public') return [];
  if (access.kind === 'operator') return [{ operatorToken: [] }];
  const always = access.scopes ?? [];
  if (access.anyScope === undefined) return [{ accessToken: [...always] }];
  return access.anyScope.map((scope) => ({ accessToken: [...always, scope] }));
}

function pathParameters(route: RouteDocumentation): JsonSchema[] {
  return [...route.path.matchAll(/\{([a-z_]+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
}

function queryParameters(route: RouteDocumentation, components: Components): JsonSchema[] {
  return Object.entries(route.query?.shape ?? {}).map(([name, schema]) => {
    const { description, ...shape } = components.schemaOf(schema as z.ZodType, 'input');
    return {
      name,
      in: 'query',
      required: false,
      ...(description === undefined ? {} : { description }),
      schema: shape,
    };
  });
}

function headers(route: RouteDocumentation): JsonSchema[] {
  return Object.entries(route.headers ?? {})
    .filter(([name]) => name !== 'Accept')
    .map(([name, description]) => ({
      name,
      in: 'header',
      required: false,
      description,
      schema: { type: 'string' },
    }));
}

function requestBodyOf(route: RouteDocumentation, components: Components): JsonSchema | undefined {
  if (route.streamed !== undefined) {
    return { required: true, content: { [route.streamed.mediaType]: { schema: {} } } };
  }
  if (route.raw !== undefined) {
    const content = route.raw.mediaTypes.map((mediaType) => [
      mediaType,
      { schema: mediaType === JSON_MEDIA_TYPE && route.body ? components.schemaOf(route.body, 'input') : {} },
    ]);
    return { required: false, content: Object.fromEntries(content) };
  }
  if (route.body === undefined) return undefined;
  return {
    required: !route.body.safeParse({}).success,
    content: { [JSON_MEDIA_TYPE]: { schema: components.schemaOf(route.body, 'input') } },
  };
}

interface Described {
  description: string;
  headers?: JsonSchema;
  content?: JsonSchema;
}

function answersOf(route: RouteDocumentation, components: Components): Record<string, Described> {
  return Object.fromEntries(
    Object.entries(route.answers).map(([status, answer]) => [
      status,
      {
        description: answer.description,
        ...(answer.headers === undefined ? {} : { headers: headerDocs(answer.headers) }),
        ...(answer.content === undefined
          ? {}
          : {
              content: Object.fromEntries(
                Object.entries(answer.content).map(([mediaType, schema]) => [
                  mediaType,
                  { schema: components.schemaOf(schema, 'output') },
                ]),
              ),
            }),
      },
    ]),
  );
}

/** A status may have an answer of the route's own beside the refusals, in another media type. */
function merged(answers: Record<string, Described>, refusals: Record<string, Described>): JsonSchema {
  const both = Object.entries(refusals).map(([status, refusal]) => {
    const answer = answers[status];
    if (answer === undefined) return [status, refusal];
    const description = `${answer.description}; ${refusal.description}`;
    return [status, { ...answer, description, content: { ...answer.content, ...refusal.content } }];
  });
  return { ...answers, ...Object.fromEntries(both) };
}

function headerDocs(names: readonly string[]): JsonSchema {
  return Object.fromEntries(names.map((name) => [name, { schema: { type: 'string' } }]));
}

/** By status, with the codes that it stands for. */
function refusalsOf(route: RouteDocumentation, components: Components): Record<string, Described> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of new Set(errorsOf(route))) {
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const schema = components.schemaOf(ProblemSchema, 'output');
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [
      status,
      {
        description: codes.map((code) => `\`${code}\`: ${ERRORS[code].reason}`).join('; '),
        content: { [PROBLEM_MEDIA_TYPE]: { schema } },
      },
    ]),
  );
}

/** What the road to a handler may refuse, before what the handler itself may. */
function errorsOf(route: RouteDocumentation): ErrorCode[] {
  const codes: ErrorCode[] = ['internal'];
  if (route.path.startsWith('/v1/')) codes.push('forbidden');
  if (route.access.kind !== 'public') codes.push('invalid_request', 'unauthenticated', 'issuer_unavailable');
  if (route.access.kind === 'tenant') codes.push('insufficient_scope', 'rate_limited');
  if (route.access.kind !== 'public' || route.body !== undefined) codes.push('overloaded', 'object_reset');
  if (route.query !== undefined || Object.keys(route.headers ?? {}).length > 0) codes.push('invalid_request');
  if (route.streamed !== undefined) codes.push('unsupported_media_type');
  if (route.body !== undefined || route.raw !== undefined) {
    codes.push('invalid_request', 'invalid_json', 'payload_too_large', 'unsupported_media_type');
  }
  return [...codes, ...route.errors];
}
