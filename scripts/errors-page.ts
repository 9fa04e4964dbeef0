/** `npm run errors`: writes `docs/errors.md` from the one list of codes. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ERRORS_PAGE, errorsPage } from './errors-page/page.ts';
import { locations } from './locations.ts';

await writeFile(join(locations(process.env).repositoryDir, ERRORS_PAGE), errorsPage());
