/** Schemas that the API's description names. Answers are described as they are given, requests as they are taken. */
import * as z from 'zod';
import { EnvelopeSchema } from '../../shared/dsse.ts';
import { ExecuteSchema, ExecutionSchema } from '../../shared/execution.ts';
import { ProblemSchema } from '../../shared/problem.ts';
import { ReceiptExportSchema } from '../../shared/receipt-verify.ts';
import { CreateSessionSchema, SessionListSchema, SessionSchema } from '../../shared/session.ts';

const ANSWERS: Readonly<Record<string, z.ZodType>> = {
  Session: SessionSchema,
  SessionList: SessionListSchema,
  Execution: ExecutionSchema,
  Envelope: EnvelopeSchema,
  ReceiptExport: ReceiptExportSchema,
  Problem: ProblemSchema,
};
const REQUESTS: Readonly<Record<string, z.ZodType>> = {
  CreateSession: CreateSessionSchema,
  Execute: ExecuteSchema,
};

type Direction = 'input' | 'output';
export type JsonSchema = Record<string, unknown>;

const JsonSchemaSchema = z.record(z.string(), z.unknown());
const SharedSchema = z.object({ $defs: z.record(z.string(), JsonSchemaSchema) });
/** Under this name the conversion gives what several schemas of a registry share. */
const SHARED = '__shared';

export class Components {
  readonly #shared: Record<string, JsonSchema> = {};
  #parts = 0;
  readonly #registries = { input: registryOf(REQUESTS), output: registryOf(ANSWERS) };

  /** The schema, or a reference to it where it has a name. */
  schemaOf(schema: z.ZodType, direction: Direction): JsonSchema {
    const registry = this.#registries[direction];
    const name = registry.get(schema)?.id;
    if (name !== undefined) return { $ref: refTo(name) };
    // A named schema inside an unnamed one becomes a reference too: all are converted as one registry.
    const whole = registryOf({ ...(direction === 'input' ? REQUESTS : ANSWERS), [UNNAMED]: schema });
    return this.#withShared(convert(whole, direction));
  }

  /** What a schema refers to again and again, itself too, has no name of its own: it is given one. */
  #withShared(converted: Record<string, JsonSchema>): JsonSchema {
    const unnamed = converted[UNNAMED] ?? {};
    const shared = SharedSchema.safeParse(converted[SHARED]).data?.$defs;
    if (shared === undefined) return unnamed;
    this.#parts += 1;
    const prefix = `Part${this.#parts}_`;
    const renamed = (schema: JsonSchema): JsonSchema =>
      JsonSchemaSchema.parse(
        JSON.parse(JSON.stringify(schema).replaceAll(`${refTo(SHARED)}#/$defs/`, refTo(prefix))),
      );
    for (const [name, schema] of Object.entries(shared)) {
      this.#shared[`${prefix}${name}`] = renamed(withoutOwnName(schema));
    }
    return renamed(unnamed);
  }

  all(): Record<string, JsonSchema> {
    return {
      ...convert(this.#registries.input, 'input'),
      ...convert(this.#registries.output, 'output'),
      ...this.#shared,
    };
  }
}

const UNNAMED = 'Unnamed';

type Registry = z.core.$ZodRegistry<{ id: string }>;

function registryOf(schemas: Readonly<Record<string, z.ZodType>>): Registry {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas)) registry.add(schema, { id });
  return registry;
}

function convert(registry: Registry, direction: Direction): Record<string, JsonSchema> {
  const { schemas } = z.toJSONSchema(registry, { io: direction, uri: refTo, unrepresentable: 'any' });
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, withoutOwnName(schema)]));
}

/** In one document the dialect and the names are said by the document. */
function withoutOwnName(schema: object): JsonSchema {
  const entries = Object.entries(schema).filter(([key]) => !['$schema', '$id', 'id'].includes(key));
  return Object.fromEntries(entries);
}

function refTo(name: string): string {
  return `#/components/schemas/${name}`;
}
