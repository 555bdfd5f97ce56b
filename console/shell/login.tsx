/** Exchanges a token for a session. The cookie is the server's; the token is kept nowhere. */
import { useState } from 'preact/hooks'
import { needsToken, request, role } from '../api/api.ts'
import { refusalOf } from '../api/reading.ts'
import { Shape } from '../parts/icon.tsx'

export function Login() {
  const [token, setToken] = useState('')
  const [fault, setFault] = useState<string | undefined>(undefined)
  const logIn = async (): Promise<void> => {
    try {
      const { data } = await request('POST /session', { body: { token } })
      role.value = data.role
      setToken('')
      needsToken.value = false
    } catch (error) {
      setFault(refusalOf(error).message)
    }
  }
  return (
    <main class="login">
      <form
        class="panel pad stack-3"
        onSubmit={event => {
          event.preventDefault()
          void logIn()
        }}
      >
        <h1>Rillflow console</h1>
        <p class="dim">
          This server asks for its token. It is the text that the program gave to store.server as "token".
        </p>
        <div class="field">
          <label for="token">Token</label>
          <input
            id="token"
            class="input mono"
            type="password"
            autocomplete="current-password"
            value={token}
            aria-invalid={fault !== undefined}
            onInput={event => setToken(event.currentTarget.value)}
          />
          {fault !== undefined && (
            <span class="err" role="alert">
              <Shape name="failed" />
              {fault}
            </span>
          )}
        </div>
        <div class="actions">
          <button type="submit" class="btn btn-main" disabled={token === ''}>
            Open the console
          </button>
        </div>
      </form>
    </main>
  )
}
