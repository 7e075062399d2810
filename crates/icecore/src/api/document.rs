//! The OpenAPI document, generated from the routes.

use std::collections::BTreeMap;

use icecore_domain::page::PageKind;
use serde_json::{Map, Value, json};

use super::route::{
    BodySpec, InputField, PERIOD_PATTERN, RouteSpec, ValueType, describe_path_param,
};
use super::{live, login, page};

/// The route of the document.
pub const PATH: &str = "/api/openapi.json";
/// The response schemas.
const RESPONSE_SCHEMAS: &str = include_str!("schemas.json");
/// The extension for a complete example request, which OpenAPI lacks.
const EXAMPLE_KEY: &str = "x-icecore-example";

/// The forms of texts that the server accepts; others are refused with 400.
mod patterns {
    /// The id of an event, also in its short form.
    pub const EVENT_ID: &str = r"^(?:[Ee][Vv][Tt]-)?[0-9]{8}-[0-9]{1,6}$";
    /// A date, a weekday, or a number of days or weeks from today.
    pub const DAY: &str = r"^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[Tt]oday|[Tt]omorrow|[Yy]esterday|(?:[Mm]on|[Tt]ue|[Ww]ed|[Tt]hu|[Ff]ri|[Ss]at|[Ss]un)[a-z]*|[+-][0-9]+[dw])$";
    /// A date.
    pub const REPORT_DATE: &str = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$";
    /// A name that is not blank and has no control characters.
    pub const NAME: &str = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
}

/// The whole document.
pub fn openapi_document(routes: &[RouteSpec]) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        paths
            .entry(route.path)
            .or_default()
            .insert(route.method.as_str().to_ascii_lowercase(), operation_json(route));
    }
    for (path, about, kind) in [
        (PATH, "This document", "application/json"),
        (page::PATH, "This document as a page", "text/html"),
    ] {
        let content = json!({ kind: { "schema": {} } });
        let told = json!({
            "operationId": operation_id("get", path),
            "tags": ["About"],
            "summary": about,
            "security": [],
            "responses": { "200": { "description": about, "content": content }, "403": { "$ref": "#/components/responses/Refused" } },
            EXAMPLE_KEY: { "target": path, "body": null },
        });
        paths.entry(path).or_default().insert("get".into(), told);
    }
    let refusals = [400, 401, 403, 404, 429, 500, 503]
        .map(|status| (status.to_string(), json!({ "$ref": "#/components/responses/Refused" })));
    let about = "Changes as server-sent events: `event: changed`, with the changed resource in `data`. The first one is `everything`";
    let mut responses = Map::from_iter(refusals);
    // OpenAPI 3.1 cannot describe a stream: the schema is that of each event.
    let event = json!({
        "type": "object",
        "description": "One event of the stream",
        "properties": {
            "event": { "const": "changed" },
            "data": { "type": "string", "contentMediaType": "application/json", "contentSchema": { "$ref": "#/components/schemas/Live" } },
            "retry": { "type": "integer" },
        },
        "required": ["event", "data"],
    });
    let content = json!({ "text/event-stream": { "schema": event } });
    responses.insert("200".into(), json!({ "description": about, "content": content }));
    let live = json!({
        "operationId": operation_id("get", live::PATH),
        "tags": ["Live"],
        "summary": about,
        "parameters": [user_header_param()],
        "responses": responses,
        EXAMPLE_KEY: { "target": live::PATH, "body": null },
    });
    paths.entry(live::PATH).or_default().insert("get".into(), live);
    let schemas: Value = serde_json::from_str(RESPONSE_SCHEMAS).unwrap_or_default();
    let refused = json!({
        "description": "What is wrong, and what to do",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "icecore memory API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Everything the command line can do, with the JSON that --json prints. X-Icecore-User selects an end user's space; without it, the main vault is used.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "Refused": refused },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "The server's token; X-Api-Key is also accepted" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": "icecore_7431", "description": "Set by POST /api/login; named icecore and the port. Only from the server's own pages, and with X-Icecore-Csrf: 1 for all methods but GET" },
            },
        },
    })
}

/// The schema of a field, with the form of its text.
fn field_schema(field: &InputField) -> Value {
    let mut schema = field.schema();
    let pattern = match field.form {
        ValueType::Id => patterns::EVENT_ID,
        ValueType::Day => patterns::DAY,
        _ => return schema,
    };
    let text = if field.many { &mut schema["items"] } else { &mut schema };
    text["pattern"] = pattern.into();
    schema
}

/// The schema of a path parameter.
fn path_param_schema(name: &str) -> Value {
    let pattern = match name {
        "id" => patterns::EVENT_ID,
        "period" => PERIOD_PATTERN,
        "date" => patterns::REPORT_DATE,
        "kind" => {
            let kinds: Vec<&str> = PageKind::ALL.iter().map(|kind| kind.word()).collect();
            return json!({ "type": "string", "pattern": format!("^(?:{})$", kinds.join("|")) });
        }
        _ => return json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "type": "string", "pattern": pattern })
}

/// The header that names an end user.
fn user_header_param() -> Value {
    let about = "The end user whose space to use; the main vault if omitted";
    json!({ "name": "X-Icecore-User", "in": "header", "required": false, "description": about, "schema": { "type": "string", "minLength": 1, "maxLength": crate::spaces::MAX_USER_BYTES, "pattern": patterns::NAME } })
}

fn operation_id(method: &str, path: &str) -> String {
    let words = path
        .split(['/', '-', '.'])
        .filter(|part| !part.is_empty())
        .map(|part| part.trim_matches(['{', '}']));
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn operation_json(route: &RouteSpec) -> Value {
    let method = route.method.as_str().to_ascii_lowercase();
    let mut parameters: Vec<Value> = route
        .path_params()
        .into_iter()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "description": describe_path_param(route.path, name), "schema": path_param_schema(name) }))
        .collect();
    parameters.extend(route.query.iter().map(
        |field| json!({ "name": field.name, "in": "query", "required": field.required, "description": field.description, "schema": field_schema(field) }),
    ));
    if route.target.uses_user_header() {
        parameters.push(user_header_param());
    }
    let reply = json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{}", route.reply) } } });
    let mut responses = Map::from_iter([(
        "200".to_owned(),
        json!({ "description": route.summary, "content": reply }),
    )]);
    let writes = method != "get";
    // 409: conflict; 413: the body is too large; 429: a quota is used up; 503: busy.
    let refused = [
        (400, true),
        (401, true),
        (403, true),
        (404, true),
        (409, writes),
        (413, writes),
        (429, true),
        (500, true),
        (503, true),
    ];
    if !writes {
        responses.insert(
            "304".to_owned(),
            json!({ "description": "Not modified: the ETag equals If-None-Match" }),
        );
    }
    for (status, _) in refused.into_iter().filter(|(_, may)| *may) {
        responses.insert(status.to_string(), json!({ "$ref": "#/components/responses/Refused" }));
    }
    let sent: Value =
        route.example.1.and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let mut told = json!({
        "operationId": operation_id(&method, route.path),
        "tags": [route.group],
        "summary": route.summary,
        "security": if route.path == login::PATH { json!([]) } else { json!([{ "token": [] }, { "cookie": [] }]) },
        "parameters": parameters,
        "responses": responses,
        EXAMPLE_KEY: { "target": route.example.0, "body": sent },
    });
    if let (Some(schema), Some(fields)) = (body_schema(route.body), told.as_object_mut()) {
        let required = route.body.fields().iter().any(|field| field.required);
        fields.insert(
            "requestBody".into(),
            json!({ "required": required, "content": { "application/json": { "schema": schema, "example": sent } } }),
        );
    }
    told
}

fn body_schema(body: BodySpec) -> Option<Value> {
    match body {
        BodySpec::None => None,
        BodySpec::One(fields) => Some(nullable_object_schema(fields)),
        // Errors in a value are returned to the model, so any value is accepted.
        BodySpec::Open(fields) => {
            let properties: Map<String, Value> = fields
                .iter()
                .map(|field| (field.name.to_owned(), json!({ "description": field.description })))
                .collect();
            Some(json!({ "type": "object", "properties": properties }))
        }
        BodySpec::OneOrMany(fields) => {
            let one = nullable_object_schema(fields);
            Some(json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] }))
        }
    }
}

/// The schema of an object in a body: optional fields may also be `null`.
fn nullable_object_schema(fields: &[InputField]) -> Value {
    let mut schema = object_schema(fields);
    for field in fields.iter().filter(|field| !field.required) {
        let told = &mut schema["properties"][field.name];
        if let Some(kind) = told.get("type").cloned() {
            told["type"] = json!([kind, "null"]);
        }
        for (key, null) in [("enum", Value::Null), ("anyOf", json!({ "type": "null" }))] {
            if let Some(choices) = told.get_mut(key).and_then(Value::as_array_mut) {
                choices.push(null);
            }
        }
    }
    schema
}

/// The schema of an object with these fields and no others.
pub fn object_schema(fields: &[InputField]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut schema = field_schema(field);
            if let Some(told) = schema.as_object_mut() {
                told.insert("description".into(), field.description.into());
            }
            (field.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::call::ParsedInput;
    use super::super::routes;
    use super::*;

    #[test]
    fn a_body_takes_null_where_the_document_says_so_and_nowhere_else() {
        let admits_null = |schema: &Value| {
            let kinds =
                schema["type"].as_array().is_some_and(|kinds| kinds.contains(&json!("null")));
            kinds
                || schema["anyOf"]
                    .as_array()
                    .is_some_and(|all| all.contains(&json!({ "type": "null" })))
                || schema.get("type").or(schema.get("anyOf")).is_none()
        };
        for route in routes() {
            let schema = match route.body {
                BodySpec::One(fields) | BodySpec::OneOrMany(fields) => {
                    nullable_object_schema(fields)
                }
                BodySpec::None | BodySpec::Open(_) => continue,
            };
            for field in route.body.fields() {
                let told = &schema["properties"][field.name];
                assert_eq!(
                    admits_null(told),
                    !field.required,
                    "{} {}: {told}",
                    route.path,
                    field.name
                );
                assert!(
                    field.required
                        || told
                            .get("enum")
                            .is_none_or(|words| words.as_array().unwrap().contains(&Value::Null)),
                    "{told}"
                );
                // Another complaint may be reported, but not this one.
                let said = ParsedInput::from_object(
                    route.body.fields(),
                    &json!({ field.name: null }).to_string(),
                )
                .err()
                .map(|error| error.to_string());
                let is_named =
                    said.is_some_and(|said| said.starts_with(&format!("`{}`", field.name)));
                assert!(!is_named || field.required, "{} {}", route.path, field.name);
            }
        }
    }

    #[test]
    fn a_number_is_taken_within_the_bounds_of_the_document_and_nowhere_else() {
        let mut seen = 0;
        for route in routes() {
            for field in route.query {
                let ValueType::Between(least, most) = field.form else { continue };
                seen += 1;
                let takes = |number: usize| {
                    let said =
                        ParsedInput::from_query(route.query, &format!("{}={number}", field.name));
                    said.err().is_none_or(|error| {
                        !error.to_string().starts_with(&format!("`{}` must", field.name))
                    })
                };
                assert_eq!(field_schema(field)["minimum"], least, "{} {}", route.path, field.name);
                assert_eq!(field_schema(field)["maximum"], most, "{} {}", route.path, field.name);
                assert!(
                    takes(least) && takes(most) && !takes(most + 1),
                    "{} {}",
                    route.path,
                    field.name
                );
                assert!(least == 0 || !takes(least - 1), "{} {}", route.path, field.name);
            }
        }
        assert!(seen > 8);
    }

    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_tells_of_every_route_and_of_no_other() {
        let (routes, document) = (routes(), openapi_document(routes()));
        let told: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(|method| (method.to_uppercase(), path.clone()))
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut there: BTreeSet<(String, String)> =
            routes.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
        assert_eq!(there.len(), routes.len(), "a route is there twice");
        there
            .extend([PATH, page::PATH, live::PATH].map(|path| ("GET".to_owned(), path.to_owned())));
        assert_eq!(told, there);
    }

    #[test]
    fn the_dashboard_knows_the_api_as_it_is() {
        let kept: Value =
            serde_json::from_str(include_str!("../../../../dashboard/openapi.json")).unwrap();
        assert!(
            kept == openapi_document(routes()),
            "dashboard/openapi.json is not this API's document: start a server, run dashboard/types"
        );
    }

    #[test]
    fn the_document_is_well_formed() {
        let document = openapi_document(routes());
        assert_eq!(document["openapi"], "3.1.0");
        assert!(["title", "version"].iter().all(|field| document["info"][field].is_string()));
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in &found {
            assert!(
                document.pointer(reference.trim_start_matches('#')).is_some(),
                "{reference} leads nowhere"
            );
        }
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            let reference = format!("#/components/schemas/{name}");
            assert!(found.contains(reference.as_str()), "nobody refers to {name}");
        }
        let mut ids = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let place = format!("{method} {path}");
                assert!(
                    ids.insert(operation["operationId"].as_str().unwrap()),
                    "{place}: its id is there twice"
                );
                assert!(
                    operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()),
                    "{place}"
                );
                assert!(operation["responses"]["200"].is_object(), "{place}");
                let none = Vec::new();
                let parameters = operation["parameters"].as_array().unwrap_or(&none);
                let in_path: BTreeSet<&str> = parameters
                    .iter()
                    .filter(|one| one["in"] == "path")
                    .map(|one| one["name"].as_str().unwrap())
                    .collect();
                let named: BTreeSet<&str> = path
                    .split('/')
                    .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                    .collect();
                assert_eq!(in_path, named, "{place}");
                assert!(
                    parameters
                        .iter()
                        .all(|one| one["schema"].is_object() && one["description"].is_string()),
                    "{place}"
                );
                assert_eq!(operation.get("requestBody").is_some(), method == "post", "{place}");
                let target = operation[EXAMPLE_KEY]["target"].as_str().unwrap();
                let parts = target.split('?').next().unwrap().split('/').count();
                assert!(
                    target.starts_with('/') && parts == path.split('/').count(),
                    "{place}: {target}"
                );
            }
        }
    }
}
