/** Sessions over MCP. */
import * as z from 'zod';
import { utf8 } from '../../shared/encoding.ts';
import { CreateSessionSchema, SessionSchema } from '../../shared/session.ts';
import { placeAndCreate, reserveSession } from '../calls/create-session.ts';
import { ownSession, sessionOf } from '../calls/own-session.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { checkValue } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import { IdempotencyKeySchema } from './call-options.ts';
import type { McpServerTool } from './tool.ts';
import { jsonSchemaOf } from './tool-schema.ts';

const CreateArgumentsSchema = CreateSessionSchema.extend({
  idempotency_key: IdempotencyKeySchema.optional(),
});
const DeleteArgumentsSchema = z.strictObject({ session_id: z.string().max(64) });
const CreatedSchema = SessionSchema.pick({
  session_id: true,
  state: true,
  image: true,
  workdir: true,
  resource_limits: true,
  metadata: true,
  idle_timeout_s: true,
  created_at: true,
});

const createInput = jsonSchemaOf(CreateArgumentsSchema, 'input');

const createSession: McpServerTool = {
  listed: {
    ...mcpTool(
      {
        name: 'create_session',
        title: 'Create a session',
        description:
          'Create an isolated computer whose files, variables and processes live on from call to call. Pass its session_id to the other tools.',
        category: 'sessions',
        inputSchema: createInput,
        effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
      },
      'create_session',
    ),
    outputSchema: { ...jsonSchemaOf(CreatedSchema, 'output'), type: 'object' },
  },
  call: async (given, { exchange, signal }) => {
    const args = checkValue(withoutAbsent(given, createInput), CreateArgumentsSchema, 'arguments');
    const { idempotency_key, ...request } = args;
    const idempotency = await idempotencyOf({
      header: idempotency_key ?? null,
      route: 'MCP create_session',
      subject: exchange.principal.subject,
      body: utf8(JSON.stringify(request)),
    });
    const reserved = await reserveSession(exchange, idempotency);
    const created = unwrap(await placeAndCreate(exchange, { ...reserved, request, ephemeral: false }));
    if (signal.aborted) {
      // Nobody learns of this session.
      const session = sessionOf(exchange, reserved.sessionId);
      await session.call((stub) => stub.destroy(session.caller), UNSAFE);
    }
    const content = CreatedSchema.parse(created);
    const text = `session_id: ${content.session_id}\nIts files are in ${content.workdir}. It ends after ${content.idle_timeout_s} s without a call.`;
    return { content: [{ type: 'text', text }], structuredContent: { ...content } };
  },
};

const deleteSession: McpServerTool = {
  listed: mcpTool(
    {
      name: 'delete_session',
      title: 'Delete a session',
      description: 'End a session with everything in it.',
      category: 'sessions',
      inputSchema: jsonSchemaOf(DeleteArgumentsSchema, 'input'),
      effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
    },
    'delete_session',
  ),
  call: async (given, { exchange }) => {
    const { session_id } = checkValue(given, DeleteArgumentsSchema, 'arguments');
    const session = await ownSession(exchange, session_id);
    unwrap(await session.call((stub) => stub.destroy(session.caller), UNSAFE));
    return { content: [{ type: 'text', text: `deleted ${session_id}` }] };
  },
};

export const SESSION_TOOLS_SCOPE = 'sessions:write';
export const sessionTools: readonly McpServerTool[] = [createSession, deleteSession];
