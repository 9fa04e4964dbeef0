import { expect, test } from 'vitest';
import { type LogFields, SILENT_LOG } from '../../../host-agent/logging/log.ts';
import { linkHost } from '../../fixtures/edge-double/host.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const REQUEST_ID = 'req_CvdlGRbNQ92ESOshHIAxnA';

test('the log of a host names the request and the trace of a call, and of one without a request neither', async () => {
  const lines: LogFields[] = [];
  const host = await linkHost({ log: { ...SILENT_LOG, info: (fields) => void lines.push(fields) } });
  const { grants, peer } = await host.attach();
  for (const requestId of [REQUEST_ID, undefined, 'req_of_nobody']) {
    const grant = await grants.execute('python', { code: '1' });
    peer.command(grant.token, grant.payload, requestId);
    const executionId = grant.claims.exec ?? '';
    (await host.sandboxes.call(executionId)).end();
    await peer.finished(executionId);
    const finished = () =>
      lines.find((fields) => fields.event === 'execution_finished' && fields.execution_id === executionId);
    await expect.poll(finished).toBeDefined();
    const line = finished();
    expect(line).toMatchObject({ status: 'succeeded' });
    expect([line?.request_id, line?.trace_id]).toEqual(
      requestId === REQUEST_ID ? [REQUEST_ID, TRACE_ID] : [undefined, undefined],
    );
  }
  await host.stop();
});
