/** Requests to the gateway's front door; each answer is checked against the gateway's own description. */
import { exports } from 'cloudflare:workers';
import * as z from 'zod';
import { PROBLEM_MEDIA_TYPE, type Problem, ProblemSchema } from '../../../shared/problem.ts';
import { ORIGIN } from '../issuer-bindings.ts';

export interface ApiOptions {
  token?: string;
  headers?: HeadersInit;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is. */
  raw?: BodyInit;
}

export interface ApiAnswer {
  status: number;
  headers: Headers;
  text: string;
  json: unknown;
}

export async function api(method: string, path: string, options: ApiOptions = {}): Promise<ApiAnswer> {
  const response = await request(method, path, options);
  const text = await response.text();
  const isJson = response.headers.get('Content-Type')?.endsWith('json') === true;
  const answer = {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson ? JSON.parse(text) : undefined,
  };
  await checkDescribed(method, new URL(path, ORIGIN).pathname, answer);
  return answer;
}

/** The answer itself, for streams. */
export function request(method: string, path: string, options: ApiOptions = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  if (options.token !== undefined) headers.set('Authorization', `Bearer ${options.token}`);
  if (options.body !== undefined) headers.set('Content-Type', 'application/json');
  const body = options.body === undefined ? options.raw : JSON.stringify(options.body);
  return exports.default.fetch(
    new Request(`${ORIGIN}${path}`, { method, headers, ...(body === undefined ? {} : { body }) }),
  );
}

/** The problem of a refused request; fails where it was not refused. */
export function problemIn(answer: ApiAnswer): Problem {
  if (answer.headers.get('Content-Type') !== PROBLEM_MEDIA_TYPE) {
    throw new Error(`a refusal was expected, not ${answer.status} ${answer.text.slice(0, 300)}`);
  }
  return ProblemSchema.parse(answer.json);
}

const AnswerDocSchema = z.object({
  content: z.record(z.string(), z.object({ schema: z.record(z.string(), z.unknown()) })).optional(),
});
const DocumentSchema = z.object({
  paths: z.record(
    z.string(),
    z.record(z.string(), z.object({ responses: z.record(z.string(), AnswerDocSchema) })),
  ),
  components: z.object({ schemas: z.record(z.string(), z.unknown()) }),
});

let description: Promise<z.infer<typeof DocumentSchema>> | undefined;

async function readDescription(): Promise<z.infer<typeof DocumentSchema>> {
  return DocumentSchema.parse(await (await request('GET', '/openapi.json')).json());
}

/** A path or method that no route has is outside of the description, and so are its 404 and 405. */
async function checkDescribed(method: string, path: string, answer: ApiAnswer): Promise<void> {
  description ??= readDescription();
  const { paths, components } = await description;
  const template = Object.keys(paths).find((candidate) => matches(candidate, path));
  const operation = template === undefined ? undefined : paths[template]?.[method.toLowerCase()];
  if (operation === undefined) return;
  const about = `${method} ${template} ${answer.status}`;
  const documented = operation.responses[String(answer.status)];
  if (documented === undefined) throw new Error(`${about} is not described: ${answer.text.slice(0, 300)}`);
  const mediaType = answer.headers.get('Content-Type');
  if (mediaType === null) {
    if (documented.content !== undefined) throw new Error(`${about} should have a body`);
    return;
  }
  const schema = (documented.content?.[mediaType] ?? documented.content?.['*/*'])?.schema;
  if (schema === undefined) throw new Error(`${about} does not describe ${mediaType}`);
  if (answer.json === undefined) return;
  const parsed = schemaWith(schema, components.schemas).safeParse(answer.json);
  if (!parsed.success) throw new Error(`${about} is not as described: ${z.prettifyError(parsed.error)}`);
}

function matches(template: string, path: string): boolean {
  const pattern = template
    .replaceAll('.', '\\.')
    .replaceAll('{path}', '.*')
    .replaceAll(/\{[a-z_]+\}/g, '[^/]+');
  return new RegExp(`^${pattern}$`).test(path);
}

function schemaWith(schema: Record<string, unknown>, schemas: Record<string, unknown>): z.ZodType {
  const text = JSON.stringify({ ...schema, $defs: schemas }).replaceAll('#/components/schemas/', '#/$defs/');
  return z.fromJSONSchema(JSON.parse(text));
}
