/* A process that compiles: requests and answers are lines of JSON (docs/host-library.md). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/tx8fast/tx8.h"
#include "tx8_host.h"
#include "tx8_json.h"

#define MOST_LINE ((size_t)1 << 30)

extern char **environ;

typedef struct {
    char *at;
    size_t n, room;
} text;

struct tx8_worker {
    char **command;
    pid_t process; /* 0: none */
    int line;      /* to its stdin and from its stdout: a socket, so that a dead worker is no signal */
    text request, answer;
    json_tree reply;
    atomic_flag busy;
};

static bool put(text *t, const char *from, size_t n) {
    if (n > MOST_LINE || t->n + n + 1 > MOST_LINE) return false;
    if (t->n + n + 1 > t->room) {
        size_t room = 2 * (t->n + n + 1);
        char *made = realloc(t->at, room);
        if (!made) return false;
        t->at = made, t->room = room;
    }
    memcpy(t->at + t->n, from, n);
    t->n += n;
    t->at[t->n] = 0;
    return true;
}

static bool put_string(text *t, const char *s) {
    bool ok = put(t, "\"", 1);
    for (; ok && *s; s++) {
        char coded[8];
        if (*s == '"' || *s == '\\')
            ok = put(t, (char[]){'\\', *s}, 2);
        else if ((unsigned char)*s < 32)
            ok = put(t, coded, (size_t)snprintf(coded, sizeof coded, "\\u%04x", *s));
        else
            ok = put(t, s, 1);
    }
    return ok && put(t, "\"", 1);
}

/* --- the process --- */

static void forget(tx8_worker *w, bool kill_it, int *how) {
    if (!w->process) return;
    close(w->line);
    int status = 0;
    for (int k = 0; !kill_it && waitpid(w->process, &status, WNOHANG) == 0; k++) { /* it ends when its input does; not, if it is stuck */
        kill_it = k == 500;
        usleep(10000);
    }
    if (kill_it) kill(w->process, SIGKILL);
    while (kill_it && waitpid(w->process, &status, 0) < 0 && errno == EINTR) {}
    if (how) *how = status;
    w->process = 0, w->line = -1, w->answer.n = 0;
}

static bool start(tx8_worker *w, tx8_problem *p) {
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (w->process) return true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return tx8_complain(p, TX8_ERROR_WORKER, "starting the compiler: %s", strerror(errno));
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
        failed = failed ? failed : posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        failed = failed ? failed : posix_spawnp(&w->process, w->command[0], &actions, NULL, w->command, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        w->process = 0;
        return tx8_complain(p, TX8_ERROR_WORKER, "starting the compiler '%.500s': %s", w->command[0], strerror(failed));
    }
    w->line = ends[0];
    return true;
}

static bool lost(tx8_worker *w, tx8_problem *p) {
    int how = 0;
    forget(w, false, &how);
    if (WIFSIGNALED(how)) return tx8_complain(p, TX8_ERROR_WORKER, "compiling: the compiler's process was ended by signal %d; the next call starts another one", WTERMSIG(how));
    return tx8_complain(p, TX8_ERROR_WORKER, "compiling: the compiler's process ended with exit code %d; '%.300s' should be tx8fast serve --stdio", WEXITSTATUS(how), w->command[0]);
}

static bool send_all(tx8_worker *w, tx8_problem *p) {
    for (size_t at = 0; at < w->request.n;) {
        ssize_t n = send(w->line, w->request.at + at, w->request.n - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(w, p);
        at += (size_t)n;
    }
    return true;
}

/* The next line of the worker, without its end; what was read behind it is kept from *used on. */
static bool next_line(tx8_worker *w, size_t *used, const char **line, size_t *bytes, tx8_problem *p) {
    text *a = &w->answer;
    if (*used) memmove(a->at, a->at + *used, a->n - *used), a->n -= *used, *used = 0;
    for (size_t seen = 0;;) {
        char *end = a->n ? memchr(a->at + seen, '\n', a->n - seen) : NULL;
        if (end) {
            *line = a->at, *bytes = (size_t)(end - a->at), *used = *bytes + 1;
            return true;
        }
        seen = a->n;
        char some[1 << 16];
        ssize_t n = recv(w->line, some, sizeof some, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(w, p);
        if (!put(a, some, (size_t)n)) {
            forget(w, true, NULL);
            return tx8_complain(p, TX8_ERROR_MEMORY, "compiling: out of memory for the compiler's answer");
        }
    }
}

/* --- calls --- */

static bool make_request(tx8_worker *w, const char *command, const char *const *arguments) {
    w->request.n = 0;
    bool ok = put(&w->request, "{\"do\":", 6) && put_string(&w->request, command) && put(&w->request, ",\"arguments\":[", 14);
    for (int k = 0; ok && arguments && arguments[k]; k++) ok = (k == 0 || put(&w->request, ",", 1)) && put_string(&w->request, arguments[k]);
    return ok && put(&w->request, "]}\n", 3);
}

static bool finish(tx8_worker *w, const json_node *done, const char **result, tx8_problem *p) {
    const json_node *text = json_get(&w->reply, json_root(&w->reply), done->whole ? "error" : "result");
    if (!text || text->kind != JSON_TEXT) return tx8_complain(p, TX8_ERROR_WORKER, "compiling: the compiler's answer is none");
    if (done->whole) return tx8_complain(p, TX8_ERROR_COMPILE, "%s", text->text);
    if (result) *result = text->text;
    return true;
}

static bool converse(tx8_worker *w, tx8_worker_event event, void *user, const char **result, tx8_problem *p) {
    size_t used = 0, bytes;
    const char *line;
    if (!send_all(w, p)) return false;
    while (next_line(w, &used, &line, &bytes, p)) {
        json_free(&w->reply);
        bool read = json_read(&w->reply, line, bytes);
        const json_node *root = read ? json_root(&w->reply) : NULL;
        const json_node *done = json_get(&w->reply, root, "exit_code"), *told = json_get(&w->reply, root, "event");
        if (done && done->kind == JSON_INT) {
            bool ok = finish(w, done, result, p);
            w->answer.n = 0; /* nothing follows an answer */
            return ok;
        }
        if (!told || told->kind != JSON_TEXT) {
            forget(w, true, NULL);
            return tx8_complain(p, TX8_ERROR_WORKER, "compiling: the compiler's process does not speak the protocol; '%.300s' should be tx8fast serve --stdio",
                                w->command[0]);
        }
        if (event && event(user, told->text)) {
            forget(w, true, NULL);
            return tx8_complain(p, TX8_ERROR_CANCELLED, "compiling: ended, the callback asked for it");
        }
    }
    return false;
}

static int answer(const tx8_problem *p) { return p->status ? tx8_host_failed(p) : TX8_OK; }

static void dispose(tx8_worker *w) {
    forget(w, false, NULL);
    for (int k = 0; w->command && w->command[k]; k++) free(w->command[k]);
    free(w->command), free(w->request.at), free(w->answer.at);
    json_free(&w->reply);
    free(w);
}

int tx8_worker_open(const char *const *command, tx8_worker **worker) {
    static const char *const usual[] = {"tx8fast", "serve", "--stdio", NULL};
    tx8_problem p = {0};
    int n = 0;
    if (!command || !command[0]) command = usual;
    if (!worker) {
        tx8_complain(&p, TX8_ERROR_ARGUMENT, "making a worker: a null pointer was given");
        return answer(&p);
    }
    while (command[n]) n++;
    tx8_worker *w = *worker = calloc(1, sizeof *w);
    bool ok = w && (w->command = calloc((size_t)n + 1, sizeof *w->command));
    for (int k = 0; ok && k < n; k++) ok = (w->command[k] = strdup(command[k])) != NULL;
    if (!ok) {
        if (w) dispose(w);
        *worker = NULL;
        tx8_complain(&p, TX8_ERROR_MEMORY, "making a worker: out of memory");
        return answer(&p);
    }
    w->line = -1;
    atomic_flag_clear(&w->busy);
    return TX8_OK;
}

static bool begin(tx8_worker *w, tx8_problem *p) {
    if (!w) return tx8_complain(p, TX8_ERROR_ARGUMENT, "compiling: a null pointer was given for the worker");
    if (atomic_flag_test_and_set(&w->busy)) return tx8_complain(p, TX8_ERROR_BUSY, "compiling: another thread works with this worker; make one for each thread");
    return true;
}

int tx8_worker_call(tx8_worker *w, const char *command, const char *const *arguments, tx8_worker_event event, void *user, const char **result) {
    tx8_problem p = {0};
    if (result) *result = NULL;
    if (!begin(w, &p)) return answer(&p);
    if (!command)
        tx8_complain(&p, TX8_ERROR_ARGUMENT, "compiling: a null pointer was given for the command");
    else if (!make_request(w, command, arguments))
        tx8_complain(&p, TX8_ERROR_MEMORY, "compiling: out of memory");
    else if (start(w, &p))
        converse(w, event, user, result, &p);
    atomic_flag_clear(&w->busy);
    return answer(&p);
}

int tx8_worker_close(tx8_worker *w) {
    tx8_problem p = {0};
    if (!w) return TX8_OK;
    if (!begin(w, &p)) return answer(&p);
    dispose(w);
    return TX8_OK;
}
