//! Models that hang, flood, send nonsense and break off: every request ends in time, once, and
//! without the key in any text.

use std::fs;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use icecore_engine::llm::{
    AnswerSchema, FinishReason, ModelAnswer, ModelError, ModelRequest, open,
};
use icecore_engine::settings::{ModelSettings, Provider};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scripted::{Act, Scripted, head, reply, send};

const KEY: &str = "sk-hush-4711";
/// The longest a single request of these tests may take.
const BOUND: Duration = Duration::from_secs(4);

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(BOUND, future).await.expect("it did not end in time")
    })
}

fn model(provider: Provider, base_url: String) -> ModelSettings {
    ModelSettings {
        provider,
        base_url,
        model: "tiny".into(),
        api_key: Some(SecretString::from(KEY.to_owned())),
        timeout: Duration::from_millis(1000),
        max_retry_wait: Duration::from_millis(20),
        ..ModelSettings::none("summarizer")
    }
}

fn ask() -> ModelRequest {
    ModelRequest {
        system: "be brief".into(),
        user: "say hello".into(),
        schema: None,
        max_tokens: 100,
        attempt: 0,
    }
}

fn complete(model: &ModelSettings, ask: &ModelRequest) -> Result<ModelAnswer, ModelError> {
    let llm = open(model).unwrap().unwrap();
    run(llm.complete(ask, &|_| {}))
}

/// A piece of an answer, as OpenAI's servers stream it.
fn delta(text: &str) -> Act {
    send(&format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
    ))
}

fn end(reason: &str) -> Act {
    send(&format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": null})
    ))
}

fn good() -> Vec<Act> {
    vec![head(), delta("hel"), delta("lo"), end("stop")]
}

fn status(status: u16, headers: &str) -> Vec<Act> {
    reply(status, headers, "{\"error\": {\"message\": \"not now\", \"type\": \"x\"}}")
}

struct Case {
    name: &'static str,
    script: Vec<Vec<Act>>,
    requests: usize,
    fits: fn(&Result<ModelAnswer, ModelError>) -> bool,
}

fn case(
    name: &'static str,
    script: Vec<Vec<Act>>,
    requests: usize,
    fits: fn(&Result<ModelAnswer, ModelError>) -> bool,
) -> Case {
    Case { name, script, requests, fits }
}

fn check(provider: Provider, path: &str, cases: Vec<Case>) {
    for Case { name, script, requests, fits } in cases {
        let server = Scripted::play(script);
        let found = complete(&model(provider, server.url(path)), &ask());
        assert!(fits(&found), "{name}: {found:?}");
        assert_eq!(server.requests().len(), requests, "{name}: {found:?}");
        let shown = found.map_or_else(
            |trouble| format!("{trouble} {trouble:?}"),
            |answer| format!("{answer:?}"),
        );
        assert!(!shown.contains(KEY), "{name}: {shown}");
    }
}

fn is_answer(found: &Result<ModelAnswer, ModelError>, text: &str) -> bool {
    found.as_ref().is_ok_and(|answer| answer.text == text && answer.finish == FinishReason::Done)
}

fn is_invalid_answer(found: &Result<ModelAnswer, ModelError>, part: &str) -> bool {
    matches!(found, Err(trouble @ ModelError::InvalidAnswer { said, .. }) if said.contains(part) && trouble.is_retryable() && trouble.may_have_cost())
}

#[test]
fn what_servers_do_right_is_understood() {
    let usage =
        "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 12, \"completion_tokens\": 2}}\n\n";
    let stop = "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n";
    let bytes =
        "data: {\"choices\":[{\"delta\":{\"content\":\"né\"},\"finish_reason\":\"stop\"}]}\n\n"
            .as_bytes();
    let cut = bytes.iter().position(|byte| *byte == 0xc3).unwrap() + 1;
    let crlf =
        "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\r\n\r\ndata: [DONE]\r\n\r\n";
    let thinking = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm hm hm hm \"}}]}\n\n";
    let whole = "{\"choices\":[{\"message\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}";
    check(
        Provider::OpenAi,
        "/v1",
        vec![
            case("a stream", vec![good()], 1, |found| {
                is_answer(found, "hello")
                    && found.as_ref().is_ok_and(|it| {
                        !it.measured && it.tokens_in == 5 && it.tokens_out == 2 && it.streamed
                    })
            }),
            case(
                "usage with no choices",
                vec![vec![
                    head(),
                    delta("hello"),
                    send(stop),
                    send(usage),
                    send("data: [DONE]\n\n"),
                ]],
                1,
                |found| {
                    is_answer(found, "hello")
                        && found
                            .as_ref()
                            .is_ok_and(|it| it.measured && it.tokens_in == 12 && it.tokens_out == 2)
                },
            ),
            case("CRLF", vec![vec![head(), send(crlf)]], 1, |found| is_answer(found, "hello")),
            case(
                "comments and pings",
                vec![vec![
                    head(),
                    send(": hi\n\nevent: ping\n\n"),
                    delta("hello"),
                    send(": hi\n"),
                    end("stop"),
                ]],
                1,
                |found| is_answer(found, "hello"),
            ),
            case(
                "a character split over two pieces",
                vec![vec![
                    head(),
                    Act::Send(bytes[..cut].to_vec()),
                    Act::Pause(50),
                    Act::Send(bytes[cut..].to_vec()),
                ]],
                1,
                |found| is_answer(found, "né"),
            ),
            case(
                "thoughts are counted, not kept",
                vec![vec![head(), send(thinking), delta("hello"), end("stop")]],
                1,
                |found| {
                    is_answer(found, "hello") && found.as_ref().is_ok_and(|it| it.tokens_out == 5)
                },
            ),
            case(
                "no stream",
                vec![reply(200, "Content-Type: application/json\r\n", whole)],
                1,
                |found| {
                    is_answer(found, "hello")
                        && found
                            .as_ref()
                            .is_ok_and(|it| it.measured && it.tokens_in == 7 && !it.streamed)
                },
            ),
            case(
                "cut off by its limit",
                vec![vec![head(), delta("hel"), end("length")]],
                1,
                |found| found.as_ref().is_ok_and(|answer| answer.finish == FinishReason::CutOff),
            ),
            case(
                "no [DONE], and a hang after the end",
                vec![vec![head(), delta("hello"), send(stop), Act::Hang]],
                1,
                |found| is_answer(found, "hello"),
            ),
            case(
                "another reason",
                vec![vec![head(), delta("hel"), end("content_filter")]],
                1,
                |found| {
                    found.as_ref().is_ok_and(|answer| {
                        answer.finish == FinishReason::Other("content_filter".into())
                    })
                },
            ),
        ],
    );
}

#[test]
fn what_servers_do_wrong_ends_in_trouble_that_says_so() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(
        Provider::OpenAi,
        "/v1",
        vec![
            case(
                "garbage instead of HTTP",
                vec![vec![send("\u{0}\u{1}garbage\r\n\r\n")]],
                1,
                |found| is_invalid_answer(found, ""),
            ),
            case("nothing at all", vec![vec![]], 1, |found| is_invalid_answer(found, "")),
            case("a web page", vec![reply(200, "", "<!doctype html><p>Log in</p>")], 1, |found| {
                is_invalid_answer(found, "web page")
            }),
            case("plain words", vec![reply(200, "", "it works!\n")], 1, |found| {
                is_invalid_answer(found, "neither JSON nor events")
            }),
            case("half a JSON", vec![reply(200, "", "{\"choices\": [{\"mess")], 1, |found| {
                is_invalid_answer(found, "not whole JSON")
            }),
            case(
                "half of what was promised",
                vec![reply(200, "Content-Length: 999\r\n", "{\"choices\": [{\"mess")],
                1,
                |found| is_invalid_answer(found, "broke off"),
            ),
            case("JSON of another kind", vec![reply(200, "", "{\"hello\": 1}")], 1, |found| {
                is_invalid_answer(found, "no `choices`")
            }),
            case(
                "an error with a good status",
                vec![reply(200, "", "{\"error\": \"no such model\"}")],
                1,
                |found| is_invalid_answer(found, "no such model"),
            ),
            case("cut in mid-stream", vec![vec![head(), delta("hel")], good()], 1, |found| {
                is_invalid_answer(found, "before it was finished")
            }),
            case(
                "torn in mid-stream",
                vec![vec![send(chunked), send("5\r\ndata:")], good()],
                1,
                |found| is_invalid_answer(found, "broke off"),
            ),
            case(
                "an event that is not JSON",
                vec![vec![head(), send("data: {oops\n\n")]],
                1,
                |found| is_invalid_answer(found, "not JSON"),
            ),
            case(
                "an error in mid-stream",
                vec![
                    vec![
                        head(),
                        delta("hel"),
                        send("data: {\"error\": {\"message\": \"overloaded\"}}\n\n"),
                    ],
                    good(),
                ],
                1,
                |found| is_invalid_answer(found, "overloaded"),
            ),
            case(
                "compressed unasked",
                vec![reply(200, "Content-Encoding: gzip\r\n", "\u{1f}")],
                1,
                |found| is_invalid_answer(found, "compressed"),
            ),
            case("an empty answer", vec![vec![head(), end("stop")]], 1, |found| {
                matches!(found, Err(ModelError::Empty { .. }))
            }),
            case(
                "only thoughts",
                vec![vec![head(), end("length")]],
                1,
                |found| matches!(found, Err(ModelError::Empty { said, .. }) if said.contains("cut off")),
            ),
            case(
                "no key",
                vec![vec![send("HTTP/1.1 401 X\r\nConnection: close\r\n\r\n"), Act::Echo]],
                1,
                |found| matches!(found, Err(trouble @ ModelError::Refused { status: 401, said, .. }) if said.contains("(the key)") && !trouble.is_retryable()),
            ),
            case(
                "no such model",
                vec![status(404, "")],
                1,
                |found| matches!(found, Err(ModelError::Refused { status: 404, said, .. }) if said == "not now"),
            ),
            case(
                "elsewhere",
                vec![reply(307, &format!("Location: http://127.0.0.1:1/?{KEY}\r\n"), "")],
                1,
                |found| matches!(found, Err(ModelError::Refused { status: 307, said, .. }) if said.contains("leads to http://127.0.0.1:1/")),
            ),
            case(
                "come back in an hour",
                vec![status(429, "Retry-After: 3600\r\n"), good()],
                1,
                |found| matches!(found, Err(ModelError::RateLimited { retry_after: Some(wait), .. }) if wait.as_secs() == 3600),
            ),
            case(
                "come back at a date",
                vec![
                    status(
                        503,
                        "Date: Fri, 13 Feb 2026 08:00:00 GMT\r\nRetry-After: Fri, 13 Feb 2026 09:00:00 GMT\r\n",
                    ),
                    good(),
                ],
                1,
                |found| matches!(found, Err(ModelError::RateLimited { status: 503, retry_after: Some(wait), .. }) if wait.as_secs() == 3600),
            ),
        ],
    );
}

#[test]
fn what_says_later_is_asked_again_and_at_most_twice() {
    check(
        Provider::OpenAi,
        "/v1",
        vec![
            case("429 and no wait", vec![status(429, "Retry-After: 0\r\n"), good()], 2, |found| {
                is_answer(found, "hello")
            }),
            case("500 twice", vec![status(500, ""), status(529, ""), good()], 3, |found| {
                found.as_ref().is_ok_and(|it| it.retries == 2)
            }),
            case(
                "500 three times",
                vec![status(500, ""), status(502, ""), status(504, ""), good()],
                3,
                |found| matches!(found, Err(trouble @ ModelError::Refused { status: 504, .. }) if trouble.is_retryable()),
            ),
            case(
                "429 without a word",
                vec![status(429, ""), status(429, ""), status(429, ""), good()],
                3,
                |found| matches!(found, Err(trouble @ ModelError::RateLimited { retry_after: None, .. }) if !trouble.may_have_cost()),
            ),
        ],
    );

    let server = Scripted::play(vec![status(429, "Retry-After: 1\r\n"), good()]);
    let patient = ModelSettings {
        max_retry_wait: Duration::from_secs(1),
        ..model(Provider::OpenAi, server.url("/v1"))
    };
    let start = std::time::Instant::now();
    assert!(is_answer(&complete(&patient, &ask()), "hello"));
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn nobody_at_the_other_end_is_unreachable() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let found = complete(&model(Provider::OpenAi, format!("http://{address}/v1")), &ask());
    let trouble = found.unwrap_err();
    assert!(
        matches!(trouble, ModelError::Unreachable { .. })
            && trouble.is_retryable()
            && !trouble.may_have_cost(),
        "{trouble:?}"
    );
    assert!(
        trouble.to_string().contains(&address.to_string())
            && trouble.to_string().contains("base_url"),
        "{trouble}"
    );
}

#[test]
fn a_hang_is_noticed_where_it_happens() {
    check(
        Provider::OpenAi,
        "/v1",
        vec![
            case("before the head", vec![vec![Act::Hang], good()], 1, |found| {
                matches!(found, Err(ModelError::TimedOut { what: "no answer", .. }))
            }),
            case("after the head", vec![vec![head(), Act::Hang], good()], 1, |found| {
                matches!(found, Err(ModelError::TimedOut { what: "no answer", .. }))
            }),
            case(
                "between two pieces",
                vec![vec![head(), delta("hel"), Act::Hang], good()],
                1,
                |found| {
                    matches!(found, Err(trouble @ ModelError::TimedOut { what: "no further piece of its answer", after, .. })
                    if *after == Duration::from_millis(500) && trouble.may_have_cost() && trouble.is_retryable())
                },
            ),
            case(
                "never, but too slowly",
                vec![
                    std::iter::once(head())
                        .chain((0..20).flat_map(|_| [delta("h"), Act::Pause(100)]))
                        .collect(),
                ],
                1,
                |found| matches!(found, Err(ModelError::TimedOut { what: "no whole answer", .. })),
            ),
        ],
    );
}

#[test]
fn however_much_comes_only_so_much_is_kept() {
    let piece =
        |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let most = 100 * 8 + 4096;
    let server =
        Scripted::play(vec![vec![head(), Act::Flood(piece("endless ").into_bytes())], good()]);
    let heard = AtomicUsize::new(0);
    let llm = open(&model(Provider::OpenAi, server.url("/v1"))).unwrap().unwrap();
    let answer = run(llm.complete(&ask(), &|bytes| heard.store(bytes, Ordering::SeqCst))).unwrap();
    assert_eq!((answer.text.len(), answer.finish), (most, FinishReason::CutOff));
    assert!(heard.load(Ordering::SeqCst) > most / 2);
    assert_eq!(server.requests().len(), 1);

    let server = Scripted::play(vec![vec![head(), delta(&"é".repeat(most * 5)), end("stop")]]);
    let answer = complete(&model(Provider::OpenAi, server.url("/v1")), &ask()).unwrap();
    assert_eq!((answer.text.len(), answer.finish), (most, FinishReason::CutOff));

    let whole = json!({"choices": [{"message": {"content": "x".repeat(most * 10)}, "finish_reason": "stop"}]}).to_string();
    let server = Scripted::play(vec![reply(200, "", &whole)]);
    let answer = complete(&model(Provider::OpenAi, server.url("/v1")), &ask()).unwrap();
    assert_eq!((answer.text.len(), answer.finish), (most, FinishReason::CutOff));

    let line = vec![b'x'; 64 << 10];
    check(
        Provider::OpenAi,
        "/v1",
        vec![
            case(
                "a line without end",
                vec![vec![head(), send("data: "), Act::Flood(line.clone())]],
                1,
                |found| matches!(found, Err(ModelError::TooLong { limit_bytes: 1_048_576, .. })),
            ),
            case(
                "a JSON without end",
                vec![vec![head(), send("{\"a\": \""), Act::Flood(line.clone())]],
                1,
                |found| matches!(found, Err(ModelError::TooLong { .. })),
            ),
            case(
                "an error without end",
                vec![vec![send("HTTP/1.1 400 X\r\n\r\n"), Act::Flood(line.clone())]],
                1,
                |found| matches!(found, Err(ModelError::Refused { said, .. }) if said.len() < 700),
            ),
            case(
                "a head without end",
                vec![vec![send("HTTP/1.1 200 OK\r\nX: "), Act::Flood(line)]],
                1,
                |found| is_invalid_answer(found, ""),
            ),
        ],
    );
}

// P5
#[test]
fn a_later_attempt_is_given_more_time() {
    let slow = || vec![vec![Act::Pause(600), head(), delta("hello"), end("stop")]];
    let found = |attempt| {
        let server = Scripted::play(slow());
        let model = ModelSettings {
            timeout: Duration::from_millis(600),
            ..model(Provider::OpenAi, server.url("/v1"))
        };
        complete(&model, &ModelRequest { attempt, ..ask() })
    };
    assert!(
        matches!(found(0), Err(ModelError::TimedOut { after, .. }) if after == Duration::from_millis(450))
    );
    assert!(is_answer(&found(2), "hello"));
}

fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn form() -> Option<AnswerSchema> {
    Some(AnswerSchema {
        name: "fact",
        json: json!({"type": "object", "properties": {"word": {"type": "string"}}}),
    })
}

#[test]
fn a_request_says_what_is_wanted_and_extra_wins() {
    let server = Scripted::play(vec![good()]);
    let mut model = model(Provider::OpenAi, server.url("/v1/"));
    model.extra = json!({"temperature": 0.2, "max_tokens": 7}).as_object().unwrap().clone();
    complete(&model, &ModelRequest { schema: form(), ..ask() }).unwrap();
    let request = server.requests().remove(0);
    let head = request.split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1"), "{head}");
    assert!(
        head.contains(&format!("authorization: bearer {KEY}"))
            && head.contains("accept-encoding: identity"),
        "{head}"
    );
    let body = body(&request);
    assert_eq!(body["model"], "tiny");
    assert_eq!(
        body["messages"],
        json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "say hello"}])
    );
    assert_eq!(
        (&body["stream"], &body["stream_options"]),
        (&json!(true), &json!({"include_usage": true}))
    );
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0.2), &json!(7)));
    let format = &body["response_format"];
    assert_eq!(
        (&format["type"], &format["json_schema"]["name"], &format["json_schema"]["strict"]),
        (&json!("json_schema"), &json!("fact"), &json!(true))
    );
}

#[test]
fn what_a_server_does_not_know_is_left_out_from_then_on() {
    let no = |complaint: &str| {
        reply(400, "", &json!({"error": {"message": complaint, "param": null}}).to_string())
    };
    let server = Scripted::play(vec![
        no("Unrecognized request argument: stream_options"),
        no("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        reply(
            422,
            "",
            "{\"detail\": [{\"loc\": [\"body\", \"response_format\"], \"msg\": \"unexpected\"}]}",
        ),
        good(),
        good(),
        no("the prompt is too long"),
    ]);
    let llm = open(&model(Provider::OpenAi, server.url("/v1"))).unwrap().unwrap();
    let ask = ModelRequest { schema: form(), ..ask() };
    assert_eq!(run(llm.complete(&ask, &|_| {})).unwrap().retries, 3);
    assert_eq!(run(llm.complete(&ask, &|_| {})).unwrap().retries, 0);
    assert!(matches!(
        run(llm.complete(&ask, &|_| {})),
        Err(ModelError::Refused { status: 400, .. })
    ));
    let requests = server.requests();
    assert_eq!(requests.len(), 6);
    let last = body(&requests[4]);
    assert_eq!(
        (&last["stream_options"], &last["max_tokens"], &last["max_completion_tokens"]),
        (&Value::Null, &Value::Null, &json!(100))
    );
    assert_eq!(last["response_format"], json!({"type": "json_object"}));
    assert!(last["messages"][0]["content"].as_str().unwrap().contains("\"word\""), "{last}");
}

#[test]
fn a_check_tells_what_the_model_can_do() {
    let list =
        |name: &str| reply(200, "", &json!({"data": [{"id": "other"}, {"id": name}]}).to_string());
    let json = || vec![head(), delta("{\"word\": \"ready\"}"), end("stop")];
    let found = |script| {
        let server = Scripted::play(script);
        let llm = open(&model(Provider::OpenAi, server.url("/v1"))).unwrap().unwrap();
        assert_eq!(llm.name(), "openai:tiny");
        let probes = run(llm.check_abilities());
        assert!(!format!("{probes:?}").contains(KEY));
        probes.into_iter().map(|probe| (probe.what, probe.ok)).collect::<Vec<_>>()
    };
    let (reach, know, answer, stream, count, obey) = (
        "reachable",
        "model is listed",
        "answers",
        "streams",
        "reports token usage",
        "follows a schema",
    );
    assert_eq!(
        found(vec![list("tiny"), good(), json()]),
        [(reach, true), (know, true), (answer, true), (stream, true), (count, false), (obey, true)]
    );
    assert_eq!(
        found(vec![list("big"), good(), good()]),
        [
            (reach, true),
            (know, false),
            (answer, true),
            (stream, true),
            (count, false),
            (obey, false)
        ]
    );
    assert_eq!(
        found(vec![status(401, ""), status(401, "")]),
        [(reach, true), (know, false), (answer, false)]
    );
    assert_eq!(found(vec![vec![send("what?")]]), [(reach, false)]);
}

/// An event of Anthropic's stream.
fn event(value: &Value) -> Act {
    send(&format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()))
}

fn start_event() -> Act {
    event(
        &json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 3, "output_tokens": 1}}}),
    )
}

fn wrote(delta: &Value) -> Act {
    event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

fn stop_events(reason: &str) -> Vec<Act> {
    vec![
        event(
            &json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}),
        ),
        event(&json!({"type": "message_stop"})),
    ]
}

#[test]
fn anthropics_messages_are_understood_or_said_to_be_broken() {
    let text = || wrote(&json!({"type": "text_delta", "text": "hello"}));
    let ping = || event(&json!({"type": "ping"}));
    let thought = || wrote(&json!({"type": "thinking_delta", "thinking": "hm"}));
    let good = || {
        [vec![head(), start_event(), ping(), thought(), text(), ping()], stop_events("end_turn")]
            .concat()
    };
    let whole = json!({"type": "message", "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 2}});
    let overloaded = event(
        &json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    );
    check(
        Provider::Anthropic,
        "",
        vec![
            case("a stream", vec![good()], 1, |found| {
                is_answer(found, "hello") && found.as_ref().is_ok_and(|it| it.measured && it.tokens_in == 12 && it.tokens_out == 4)
            }),
            case("no stream", vec![reply(200, "", &whole.to_string())], 1, |found| {
                is_answer(found, "hello") && found.as_ref().is_ok_and(|it| it.measured)
            }),
            case("cut off", vec![[vec![head(), start_event(), text()], stop_events("max_tokens")].concat()], 1, |found| {
                found.as_ref().is_ok_and(|answer| answer.finish == FinishReason::CutOff)
            }),
            case("an error in mid-stream", vec![vec![head(), start_event(), text(), overloaded], good()], 1, |found| {
                is_invalid_answer(found, "Overloaded")
            }),
            case("cut in mid-stream", vec![vec![head(), start_event(), text()], good()], 1, |found| is_invalid_answer(found, "before it was finished")),
            case("529, then good", vec![status(529, ""), good()], 2, |found| is_answer(found, "hello")),
            case("no key", vec![status(401, "")], 1, |found| matches!(found, Err(ModelError::Refused { status: 401, .. }))),
            case("a hang between pieces", vec![vec![head(), start_event(), Act::Hang]], 1, |found| {
                matches!(found, Err(ModelError::TimedOut { .. }))
            }),
            case(
                "an endless stream",
                vec![vec![
                    head(),
                    start_event(),
                    Act::Flood(b"data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"on and on \"}}\n\n".to_vec()),
                ]],
                1,
                |found| found.as_ref().is_ok_and(|answer| answer.finish == FinishReason::CutOff && answer.text.len() == 4896),
            ),
            case("an empty answer", vec![[vec![head(), start_event()], stop_events("end_turn")].concat()], 1, |found| {
                matches!(found, Err(ModelError::Empty { .. }))
            }),
        ],
    );
}

#[test]
fn anthropic_is_made_to_call_a_tool_for_a_form() {
    let piece = |text: &str| wrote(&json!({"type": "input_json_delta", "partial_json": text}));
    let chat = wrote(&json!({"type": "text_delta", "text": "Let me call it."}));
    let server = Scripted::play(vec![
        [
            vec![head(), start_event(), chat, piece("{\"word\":"), piece(" \"hi\"}")],
            stop_events("tool_use"),
        ]
        .concat(),
    ]);
    let answer = complete(
        &model(Provider::Anthropic, server.url("/v1")),
        &ModelRequest { schema: form(), ..ask() },
    )
    .unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("{\"word\": \"hi\"}", FinishReason::Done));
    let request = server.requests().remove(0);
    let head = request.to_lowercase();
    assert!(
        head.starts_with("post /v1/messages http/1.1")
            && head.contains("anthropic-version: 2023-06-01"),
        "{head}"
    );
    assert!(
        head.contains(&format!("x-api-key: {KEY}")) && !head.contains("authorization"),
        "{head}"
    );
    let body = body(&request);
    assert_eq!(
        (&body["system"], &body["max_tokens"], &body["stream"]),
        (&json!("be brief"), &json!(100), &json!(true))
    );
    assert_eq!(body["tool_choice"], json!({"type": "tool", "name": "fact"}));
    assert_eq!(body["tools"][0]["input_schema"], form().unwrap().json);
}

/// A program that does what `script` says.
fn program(folder: &TempDir, script: &str) -> ModelSettings {
    let path = folder.path().join("model.sh");
    fs::write(&path, script).unwrap();
    let command = vec![
        "sh".to_owned(),
        path.to_str().unwrap().to_owned(),
        "an argument; with $(nothing) done to it".to_owned(),
    ];
    ModelSettings {
        provider: Provider::Command,
        command,
        timeout: Duration::from_millis(1500),
        ..ModelSettings::none("chat")
    }
}

#[test]
fn a_program_reads_the_prompt_and_prints_the_answer() {
    let folder = TempDir::new().unwrap();
    let found = |script: &str| complete(&program(&folder, script), &ask());
    let echo = found("cat; printf '|%s' \"$1\"").unwrap();
    assert_eq!(echo.text, "be brief\n\nsay hello|an argument; with $(nothing) done to it");
    assert!(!echo.measured && echo.tokens_in == 5 && echo.finish == FinishReason::Done);
    assert_eq!(found("echo deaf").unwrap().text, "deaf\n");
    assert_eq!(found("exec 0<&-; echo ok; echo 'a warning' >&2").unwrap().text, "ok\n");

    let flood = found("exec yes 'and on'").unwrap();
    assert_eq!((flood.text.len(), flood.finish), (4896, FinishReason::CutOff));
    let noisy = found("i=0; while [ $i -lt 3000 ]; do echo 'noise noise noise noise noise noise' >&2; i=$((i+1)); done; echo ok").unwrap();
    assert_eq!(noisy.text, "ok\n");

    let failed =
        found("echo half; echo 'first' >&2; echo 'out of credit' >&2; exit 3").unwrap_err();
    assert!(
        matches!(&failed, ModelError::CommandFailed { exit, said, .. } if exit.contains('3') && said.contains("out of credit")),
        "{failed:?}"
    );
    assert!(matches!(found("exit 0"), Err(ModelError::Empty { .. })));
    assert!(
        matches!(found("kill -9 $$"), Err(ModelError::CommandFailed { exit, .. }) if exit.contains("signal"))
    );

    let mut nobody = program(&folder, "");
    nobody.command = vec!["/no/such/program".into()];
    let missing = complete(&nobody, &ask()).unwrap_err();
    assert!(
        matches!(missing, ModelError::CommandNotStarted { .. })
            && !missing.is_retryable()
            && !missing.may_have_cost()
    );
    assert_eq!(open(&nobody).unwrap().unwrap().name(), "command:program");
}

// P5
#[test]
fn a_program_that_hangs_is_killed_and_gone() {
    let folder = TempDir::new().unwrap();
    let note = folder.path().join("pid");
    let mut hanging = program(&folder, &format!("echo $$ > {}; exec sleep 30", note.display()));
    hanging.timeout = Duration::from_millis(300);
    let trouble = complete(&hanging, &ModelRequest { attempt: 2, ..ask() }).unwrap_err();
    assert!(
        matches!(trouble, ModelError::TimedOut { after, .. } if after == Duration::from_millis(600)),
        "{trouble:?}"
    );
    let process = format!("/proc/{}", fs::read_to_string(note).unwrap().trim());
    assert!(
        !std::path::Path::new("/proc/self").exists() || !std::path::Path::new(&process).exists(),
        "{process} still runs"
    );
}

#[test]
fn a_large_prompt_and_a_large_answer_do_not_wait_for_each_other() {
    let folder = TempDir::new().unwrap();
    let large = ModelRequest { user: "word ".repeat(200_000), max_tokens: 200_000, ..ask() };
    let answer = complete(&program(&folder, "cat"), &large).unwrap();
    assert_eq!(answer.text.len(), "be brief\n\n".len() + large.user.len());
}

#[test]
fn where_there_is_no_model_none_is_opened_and_a_key_is_not_sent_in_the_clear() {
    assert!(open(&ModelSettings::none("chat")).unwrap().is_none());
    let mistake =
        open(&model(Provider::OpenAi, "http://example.org/v1".into())).err().unwrap().to_string();
    assert!(mistake.contains("use https://") && !mistake.contains(KEY), "{mistake}");
}
