/** Schemas of what every call passes. */
import * as z from 'zod';

/**
 * The same schema with its check written out as one function: many times as fast, and the whole of it is a few hundred
 * instructions instead of a walk over objects. To be called while a module loads: a Worker may make code from text then, and
 * never again. Where none may be made, as under a strict content security policy, the schema is as it was; a value that does
 * not fit goes through the schema as it was in any case, so errors are the same.
 */
export function compiled<Schema extends z.ZodType>(schema: Schema): Schema {
  return z.compile(schema);
}
