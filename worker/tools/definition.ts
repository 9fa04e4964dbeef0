/** A tool as callers see it, whatever runs it. */
import type { ArgumentConstraint } from '../../shared/argument-constraint.ts';

export type JsonSchema = Readonly<Record<string, unknown>>;

/** What a call may do to its surroundings, for clients that ask a person before it. */
export interface ToolEffects {
  readOnly: boolean;
  destructive: boolean;
  idempotent: boolean;
  /** Reaches beyond the session. */
  openWorld: boolean;
}

export interface ToolDefinition {
  name: string;
  title: string;
  description: string;
  category: string;
  /** The schema that arguments are checked against: exports are made from it and never change it. */
  inputSchema: JsonSchema;
  /** Of what it gives, where it says so. */
  outputSchema?: JsonSchema | undefined;
  effects: ToolEffects;
  /** What arguments must be for whoever asks; the description says it too. */
  constraints?: readonly ArgumentConstraint[] | undefined;
  /** Who may call it, in the words of the model APIs; anybody where it is absent. */
  allowedCallers?: readonly string[] | undefined;
}
